"""A step as a timeline: what every pipeline device does when, by executing the order of its schedule.

It shares nothing with the closed form of the step time but what each stage takes.
"""
