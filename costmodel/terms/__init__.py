"""Physical effects, one file each. A term is a function of a scenario's facts and of the plan axes that it declares."""
