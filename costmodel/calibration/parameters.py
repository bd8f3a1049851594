"""The parameters of the cost model: what each means, and which values it can have."""

from __future__ import annotations

from dataclasses import dataclass, fields

from costmodel.arrays import Num, num


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Every parameter that terms read. Fractions are of the peak or of one; the rest carries its unit in the name.

    Attributes:
        gemm_efficiency: share of the peak that a large aligned GEMM reaches.
        gemm_k_half, gemm_mn_half: size at which the inner, or the smaller outer, dimension costs half the efficiency.
        gemm_launch_s: what a GEMM takes before its first operation.
        gemm_alignment, misaligned_factor: a per-device dimension off this multiple runs this many times slower.
        grouped_gemm_factor: slowdown of expert GEMMs against one dense GEMM of the same size.
        attention_efficiency: share of the peak reached by the attention core on the FLOPs of a causal mask.
        scan_chunk_tokens: tokens of a sequence that a mixer's scan takes at once.
        scan_efficiency: share of the 16-bit peak that the products of a mixer's chunked scan reach.
        pointwise_efficiency: share of the memory bandwidth that elementwise and norm kernels reach.
        unfused_norm_tensors, unfused_rotary_tensors: 16-bit tensors that a root-mean-square norm, and the rotation of
            queries and keys, read and write as separate PyTorch operations.
        loss_traffic_bytes: bytes moved per logit by softmax, cross entropy and their gradient.
        scale_up_efficiency, scale_out_efficiency, pcie_efficiency: share of the link rate that a large ring reaches,
            by kind.
        all_to_all_factor: rate of an all-to-all over that of a ring, on a network.
        collective_ramp: what a collective takes between small and large messages, over the geometric mean of its start
            and its transfer.
        in_network_gain: all-reduce speed-up where the scale-up switch reduces (NVLS).
        in_network_gain_across: the same where the group leaves the scale-up domain.
        in_network_min_ranks: ranks from which on switches reduce.
        scale_up_latency_s, scale_out_latency_s: start of one collective, by the outermost tier it reaches; PCIe
            counts as scale-up.
        scale_up_hop_s, scale_out_hop_s: one step of a ring.
        compute_multiplier: how much longer a framework's kernels take than the bare ones.
        tp_exposed_share, ep_exposed_share, cp_exposed_share: share of the communication that no overlap hides.
        ep_overlap_share: share of a layer's compute that hides dispatch and combine of another micro-batch, where
            a plan overlaps them.
        ep_overlap_sm_share: share of the multiprocessors that communicate meanwhile, and don't compute.
        pp_exposed_share, pp_exposed_share_interleaved: share of a stage boundary's transfer that delays the stage.
        dp_overlap_share: share of the backward (forward) pass of the last (first) micro-batch that hides reductions
            (gathers).
        fsdp_overlap_share: share of a layer's own compute that hides its gathers and reductions under ZeRO-2/3.
        gradient_wire_bytes, parameter_wire_bytes: bytes per parameter on the wire in reduction and gather.
        fixed_step_s, fixed_microbatch_s, fixed_chunk_s: host work per step, per micro-batch, and for each of its
            chunks.
        host_layer_s: least time of one layer, forward and backward, for one micro-batch: the host's launches.
        host_pipeline_layer_s, host_pipeline_layer_tp_s: the same in a pipeline that leaves the scale-up domain, and
            what every tensor-parallel rank adds to it.
        optimizer_traffic_bytes: bytes that the optimizer step moves per parameter it owns.
        host_link_efficiency: share of the link between device and host that large copies reach.
        host_memory_bandwidth: bytes/s that one node's memory moves for all of its devices together.
        host_overlap_share: share of a pass, or of the hosts' own step, that hides transfers beside it.
        expert_imbalance: tokens of the fullest device over the mean.
        activation_coefficient: saved activations as measured over as counted.
        logits_bytes: bytes per logit alive at the peak of the loss.
        communicator_bytes: of the overhead, buffers of each group that a device communicates in.
        optimizer_temporary_share: of one moment, what an elementwise optimizer of two moments allocates for its step.
        overhead_bytes: allocated memory that is neither state nor activations (communicators, workspaces).
        reserved_over_allocated: the allocator's pool over what is alive in it at the peak.
        context_bytes: device memory that a process holds outside of the allocator.
        usable_fraction: share of the device memory up to which runs neither failed nor thrashed.
        time_level: what a step takes over what its terms come to: a kind of hardware and software as a whole.
        time_relative_error, memory_relative_error: half width of the 90 % interval of step time, and of the fullest
            stage's allocated memory, relative.
        beyond_range_error: how much wider both become with every doubling beyond what the fitted runs were like.
    """

    gemm_efficiency: Num
    gemm_k_half: Num
    gemm_mn_half: Num
    gemm_launch_s: Num
    gemm_alignment: Num
    misaligned_factor: Num
    grouped_gemm_factor: Num
    attention_efficiency: Num
    scan_chunk_tokens: Num
    scan_efficiency: Num
    pointwise_efficiency: Num
    unfused_norm_tensors: Num
    unfused_rotary_tensors: Num
    loss_traffic_bytes: Num
    scale_up_efficiency: Num
    scale_out_efficiency: Num
    pcie_efficiency: Num
    all_to_all_factor: Num
    collective_ramp: Num
    in_network_gain: Num
    in_network_gain_across: Num
    in_network_min_ranks: Num
    scale_up_latency_s: Num
    scale_out_latency_s: Num
    scale_up_hop_s: Num
    scale_out_hop_s: Num
    compute_multiplier: Num
    tp_exposed_share: Num
    ep_exposed_share: Num
    cp_exposed_share: Num
    ep_overlap_share: Num
    ep_overlap_sm_share: Num
    pp_exposed_share: Num
    pp_exposed_share_interleaved: Num
    dp_overlap_share: Num
    fsdp_overlap_share: Num
    gradient_wire_bytes: Num
    parameter_wire_bytes: Num
    fixed_step_s: Num
    fixed_microbatch_s: Num
    fixed_chunk_s: Num
    host_layer_s: Num
    host_pipeline_layer_s: Num
    host_pipeline_layer_tp_s: Num
    optimizer_traffic_bytes: Num
    host_link_efficiency: Num
    host_memory_bandwidth: Num
    host_overlap_share: Num
    expert_imbalance: Num
    activation_coefficient: Num
    logits_bytes: Num
    communicator_bytes: Num
    optimizer_temporary_share: Num
    overhead_bytes: Num
    reserved_over_allocated: Num
    context_bytes: Num
    usable_fraction: Num
    time_level: Num
    time_relative_error: Num
    memory_relative_error: Num
    beyond_range_error: Num

    def on_device(self, allocated_bytes: float) -> float:
        """What a process with that peak holds of its device: the allocator's pool, and what lies outside of it."""
        return allocated_bytes * float(self.reserved_over_allocated) + float(self.context_bytes)

    def allocated_of(self, on_device_bytes: float) -> float:
        """The peak with which a process holds so much of its device: ``on_device``, the other way round."""
        return (on_device_bytes - float(self.context_bytes)) / float(self.reserved_over_allocated)


PARAMETER_NAMES: tuple[str, ...] = tuple(field.name for field in fields(Parameters))


# Shares of what hardware can do at most.
SHARES_OF_ONE = frozenset(
    {
        "gemm_efficiency",
        "attention_efficiency",
        "pointwise_efficiency",
        "scale_up_efficiency",
        "scale_out_efficiency",
        "pcie_efficiency",
        "dp_overlap_share",
        "fsdp_overlap_share",
        "host_link_efficiency",
        "host_overlap_share",
        "ep_overlap_share",
        "ep_overlap_sm_share",
        "usable_fraction",
    }
)
# What memory is counted with; all others are of time.
OF_MEMORY = frozenset(
    {
        "activation_coefficient",
        "logits_bytes",
        "communicator_bytes",
        "optimizer_temporary_share",
        "overhead_bytes",
        "reserved_over_allocated",
        "context_bytes",
        "usable_fraction",
        "expert_imbalance",
    }
)
# Others divide something, or scale a whole term.
MAY_BE_ZERO = frozenset(
    name
    for name in PARAMETER_NAMES
    if name.endswith(("_s", "_share", "_bytes", "_half")) or name == "beyond_range_error"
)


def stack(parameters: list[Parameters]) -> Parameters:
    """Columns of parameters, one row per entry."""
    return Parameters(**{name: num([getattr(p, name) for p in parameters]) for name in PARAMETER_NAMES})
