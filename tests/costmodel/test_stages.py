"""How layers are laid over pipeline devices and chunks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.schedules import CODE, chunks_alive
from costmodel.stages import Layout, chunks_by_cost, layers_per_chunk, representative_stages, stage_kinds
from costmodel.table import StageTable
from tests.scenarios import plan_row

layers = st.integers(1, 200)
degrees = st.integers(1, 24)
chunk_counts = st.integers(1, 8)


def slots(layout: Layout) -> tuple[int, int]:
    """How many layers the embedding and the loss stand for."""
    return int(layout == Layout.EMBEDDING_AND_LOSS_COUNT), int(layout != Layout.EVEN)


# Where a layer of multi-token prediction counts, too: see the recipes' own layouts below.
layouts = st.sampled_from([layout for layout in Layout if layout != Layout.MTP_AND_LOSSES_COUNT])


@given(num_layers=layers, pp=degrees, vpp=chunk_counts, layout=layouts)
def test_every_layer_lies_somewhere(num_layers: int, pp: int, vpp: int, layout: Layout) -> None:
    chunks = layers_per_chunk(num_layers, pp, vpp, layout)
    # Only a loss that counts on a chunk with no layer to give is refused.
    assert (chunks is None) == (slots(layout)[1] == 1 and num_layers + sum(slots(layout)) < pp * vpp)
    if chunks is None:
        return
    assert len(chunks) == pp
    assert {len(device) for device in chunks} == {vpp}
    assert sum(map(sum, chunks)) == num_layers
    assert min(map(min, chunks)) >= 0


@given(num_layers=layers, pp=degrees, vpp=chunk_counts, layout=layouts)
def test_chunks_and_devices_are_even_within_one_layer(num_layers: int, pp: int, vpp: int, layout: Layout) -> None:
    """Counting embedding and loss as layers where the layout does."""
    chunks = layers_per_chunk(num_layers, pp, vpp, layout)
    if chunks is None:
        return
    counted = [list(device) for device in chunks]
    embedding, loss = slots(layout)
    counted[0][0] += embedding
    counted[-1][-1] += loss
    flat = [count for device in counted for count in device]
    totals = [sum(device) for device in counted]
    assert max(flat) - min(flat) <= 1
    assert max(totals) - min(totals) <= 1


@given(num_layers=layers, pp=degrees, vpp=chunk_counts, layout=layouts)
def test_the_ends_are_never_heavier_than_the_middle(num_layers: int, pp: int, vpp: int, layout: Layout) -> None:
    """There sit the embedding and the head; the last device gives up a layer first."""
    chunks = layers_per_chunk(num_layers, pp, vpp, layout)
    if chunks is None or pp < 2:
        return
    totals = [sum(device) for device in chunks]
    assert totals[-1] <= totals[0] + slots(layout)[0]
    assert max(totals[0], totals[-1]) <= min(totals[1:-1], default=max(totals))


@pytest.mark.parametrize(
    ("num_layers", "pp", "layout", "expected"),
    [
        (126, 16, Layout.EVEN, [7, *[8] * 14, 7]),
        (126, 16, Layout.EMBEDDING_AND_LOSS_COUNT, [7, *[8] * 14, 7]),
        (61, 16, Layout.EVEN, [3, *[4] * 13, 3, 3]),
        (61, 8, Layout.LOSS_COUNTS, [7, *[8] * 6, 6]),
        (32, 4, Layout.EVEN, [8, 8, 8, 8]),
        (31, 4, Layout.LOSS_COUNTS, [8, 8, 8, 7]),
        (30, 4, Layout.EMBEDDING_AND_LOSS_COUNT, [7, 8, 8, 7]),
    ],
)
def test_layers_of_each_device(num_layers: int, pp: int, layout: Layout, expected: list[int]) -> None:
    chunks = layers_per_chunk(num_layers, pp, 1, layout)
    assert chunks is not None
    assert [sum(device) for device in chunks] == expected


@pytest.mark.parametrize(
    ("pp", "vpp", "expected"),
    [
        (4, 1, [16, 16, 16, 13]),
        (8, 1, [*[8] * 7, 5]),
        (4, 2, [*[8] * 7, 5]),
        (16, 1, [*[4] * 15, 1]),
        (4, 4, [*[4] * 15, 1]),
        (8, 4, [1, *[2] * 30, 0]),
    ],
)
def test_61_layers_and_a_prediction_layer_lie_as_in_the_recipe(pp: int, vpp: int, expected: list[int]) -> None:
    """NVIDIA-NeMo/Megatron-Bridge, recipes/deepseek/deepseek_v3.py @05d003fb, and ``Et|(tt|)*30mL``, chunk by chunk."""
    chunks = layers_per_chunk(61, pp, vpp, Layout.MTP_AND_LOSSES_COUNT)
    assert chunks is not None
    assert [chunks[device][turn] for turn in range(vpp) for device in range(pp)] == expected


@given(num_layers=layers, pp=degrees, vpp=chunk_counts)
def test_three_places_at_the_ends_are_given_up_or_the_layout_does_not_exist(num_layers: int, pp: int, vpp: int) -> None:
    chunks = layers_per_chunk(num_layers, pp, vpp, Layout.MTP_AND_LOSSES_COUNT)
    if chunks is None:
        assert num_layers + 3 < 3 * pp * vpp
        return
    assert sum(map(sum, chunks)) == num_layers
    whole = sum(layer for device in chunks for layer in device) + 3
    assert max(map(max, chunks)) <= -(-whole // (pp * vpp))
    assert min(map(min, chunks)) >= 0


def test_a_layout_that_needs_a_negative_count_does_not_exist() -> None:
    assert layers_per_chunk(1, 4, 1, Layout.EMBEDDING_AND_LOSS_COUNT) is None
    assert stage_kinds(1, 1, 4, 1, Layout.EMBEDDING_AND_LOSS_COUNT) is None
    assert representative_stages(1, 1, 4, 1, Layout.EMBEDDING_AND_LOSS_COUNT) is None


def test_leading_dense_layers_follow_the_order_of_execution() -> None:
    """Chunk c of device d is virtual stage ``c p + d``: three dense layers lie on the first chunks of three devices."""
    stages = stage_kinds(16, 3, 4, 4, Layout.EVEN)
    assert stages is not None
    assert [(stage.dense_layers, stage.moe_layers) for stage in stages] == [(1, 3), (1, 3), (1, 3), (0, 4)]
    plain = stage_kinds(16, 3, 4, 1, Layout.EVEN)
    assert plain is not None
    assert [(stage.dense_layers, stage.moe_layers) for stage in plain] == [(3, 1), (0, 4), (0, 4), (0, 4)]


def test_dense_layers_between_those_with_experts_are_counted_where_they_lie() -> None:
    """Every other layer dense, over 2 devices: 3 and 3 layers have 2 and 1 dense ones; over 2 chunks the same."""
    whole = stage_kinds(6, (0, 2, 4), 2, 1, Layout.EVEN)
    assert whole is not None
    assert [(stage.dense_layers, stage.moe_layers) for stage in whole] == [(2, 1), (1, 2)]
    chunked = stage_kinds(8, (0, 2, 4, 6), 2, 2, Layout.EVEN)
    assert chunked is not None
    assert [(stage.dense_layers, stage.moe_layers) for stage in chunked] == [(2, 2), (2, 2)]


@given(
    num_layers=layers, leading=st.integers(0, 4), step=st.integers(1, 3), pp=degrees, vpp=chunk_counts, layout=layouts
)
def test_listed_dense_layers_are_all_somewhere(
    num_layers: int, leading: int, step: int, pp: int, vpp: int, layout: Layout
) -> None:
    dense = tuple(layer for layer in range(num_layers) if layer < leading or layer % step)
    stages = stage_kinds(num_layers, dense, pp, vpp, layout)
    if stages is None:
        return
    assert sum(stage.dense_layers for stage in stages) == len(dense)
    assert all(stage.moe_layers >= 0 for stage in stages)
    if dense == tuple(range(len(dense))):
        assert stages == stage_kinds(num_layers, len(dense), pp, vpp, layout)


@given(num_layers=layers, dense=st.integers(0, 4), pp=degrees, vpp=chunk_counts, layout=layouts)
def test_stages_hold_all_layers_of_both_kinds_and_one_of_each_end(
    num_layers: int, dense: int, pp: int, vpp: int, layout: Layout
) -> None:
    dense = min(dense, num_layers)
    stages = stage_kinds(num_layers, dense, pp, vpp, layout)
    if stages is None:
        return
    assert sum(stage.dense_layers for stage in stages) == dense
    assert sum(stage.moe_layers for stage in stages) == num_layers - dense
    assert [stage.index for stage in stages if stage.has_embedding] == [0]
    assert [stage.index for stage in stages if stage.has_head] == [pp - 1]


@given(num_layers=layers, dense=st.integers(0, 4), pp=degrees, vpp=chunk_counts, layout=layouts)
def test_a_representative_stands_for_every_stage_like_it(
    num_layers: int, dense: int, pp: int, vpp: int, layout: Layout
) -> None:
    """It holds the same and keeps at least as many micro-batches alive."""
    every = stage_kinds(num_layers, min(dense, num_layers), pp, vpp, layout)
    some = representative_stages(num_layers, min(dense, num_layers), pp, vpp, layout)
    if every is None or some is None:
        assert every is some is None
        return
    assert set(some) <= set(every)
    row = plan_row(64 * pp, pp=pp, vpp=vpp)
    for stage in every:
        table = StageTable.of([[stage, *some]])
        alive = chunks_alive(
            CODE["interleaved_1f1b" if vpp > 1 else "1f1b"],  # type: ignore[arg-type]
            *(table.index * 0 + row[axis] for axis in ("pp", "vpp", "num_microbatches")),
            table.index,
        )
        held = (table.dense_layers, table.moe_layers, table.has_embedding, table.has_head)
        alike = [all(part[0, i] == part[0, 0] for part in held) for i in range(1, len(some) + 1)]
        assert max(alive[0, 1:][alike]) >= alive[0, 0]


@pytest.mark.parametrize(
    ("num_layers", "pp", "head", "expected"),
    [
        (16, 2, 4, [11, 5]),  # the share of a stage is 10 layers: the one beyond stays
        (16, 4, 4, [6, 5, 5, 0]),  # the head has a stage to itself
        (16, 16, 4, [2, 1, 1, 2, 1, 1, 1, 2, 1, 1, 1, 2, 0, 0, 0, 0]),
        (32, 4, 0, [9, 8, 8, 7]),
        (7, 1, 4, [7]),
    ],
)
def test_layers_by_cost_stay_with_the_stage_whose_share_they_exceed(
    num_layers: int, pp: int, head: int, expected: list[int]
) -> None:
    """By nanotron's own rule, where the head costs as much as ``head`` layers."""
    assert [count for (count,) in chunks_by_cost(num_layers, pp, 1, head)] == expected
