"""A plan in Megatron-Core's configuration, which Megatron-LM, Megatron-Bridge and NeMo each spell in their own words.

Settings have the names of Megatron-Core's own configuration classes (``TransformerConfig``,
``DistributedDataParallelConfig``, ``OptimizerConfig``).
"""
