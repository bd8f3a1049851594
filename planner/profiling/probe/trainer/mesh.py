"""The ranks of a plan as a mesh, tensor parallel ranks next to each other and pipeline devices furthest apart.

That is the order in which plans are priced (Megatron-Core's tp-cp-dp-pp), so that what is chatty stays inside a node.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from costmodel.spec.plan import Plan

PIPELINE, REPLICATE, SHARD, CONTEXT, TENSOR = "pp", "dp_replicate", "dp_shard", "cp", "tp"


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """Where this rank is.

    Attributes:
        mesh: pp x replicas x shards x tp. Context parallel ranks hold the same parameters, and count as data parallel.
        context: the ranks that share sequences; None where none do.
        stage: pipeline device; ``replica``: which share of the batch; ``piece``: which of the sequence.
    """

    mesh: DeviceMesh
    context: DeviceMesh | None
    stage: int
    replica: int
    piece: int

    @property
    def tensor(self) -> DeviceMesh:
        return self.mesh[TENSOR]

    @property
    def pipeline(self) -> DeviceMesh:
        return self.mesh[PIPELINE]

    @property
    def sharding(self) -> DeviceMesh:
        """For FSDP: shards alone, or with replicas of them (HSDP; of one rank each where nothing is sharded)."""
        if self.mesh[REPLICATE].size() == 1:
            return self.mesh[SHARD]
        return self.mesh[REPLICATE, SHARD]


def ranks_of(plan: Plan, device_type: str) -> Ranks:
    """The mesh of a plan; every rank of the world has to call it."""
    sharded = plan.zero_stage >= 2
    replicas = plan.dp_replicate if sharded else plan.dp * plan.cp
    shards = plan.dp_shard * plan.cp if sharded else 1
    shape = (plan.pp, replicas, shards, plan.tp)
    mesh = init_device_mesh(device_type, shape, mesh_dim_names=(PIPELINE, REPLICATE, SHARD, TENSOR))
    coordinates = mesh.get_coordinate()
    assert coordinates is not None, "the world is as large as the mesh"
    stage, replica, shard, _ = coordinates
    place = replica * shards + shard
    context = None
    if plan.cp > 1:
        apart = (plan.pp, plan.dp, plan.cp, plan.tp)
        whole = init_device_mesh(device_type, apart, mesh_dim_names=(PIPELINE, "dp", CONTEXT, TENSOR))
        context = whole[CONTEXT]
    return Ranks(mesh=mesh, context=context, stage=stage, replica=place // plan.cp, piece=place % plan.cp)
