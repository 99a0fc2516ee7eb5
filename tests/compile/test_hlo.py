"""Collectives are counted with their loops, and by what a device has to receive."""

import pytest

from clawgym_jax.compile.hlo import collectives

TEXT = """HloModule step

%add (a: f32[], b: f32[]) -> f32[] {
  ROOT %sum = f32[] add(%a, %b)
}

%all-reduce-scatter.3 (p: bf16[64,8]) -> bf16[16,8] {
  %all-reduce.1 = bf16[64,8]{1,0:T(8,128)(2,1)} all-reduce(%p), replica_groups=[2,4]<=[8], to_apply=%add
  ROOT %slice.1 = bf16[16,8]{1,0} dynamic-slice(%all-reduce.1, %c, %c)
}

%more (s: (s32[], f32[4])) -> pred[] {
  %limit = s32[]{:T(128)} constant(5)
  ROOT %less = pred[] compare(%n, %limit), direction=LT
}

%again (s: (s32[], f32[4])) -> (s32[], f32[4]) {
  %sent = (f32[4]{0}, f32[4]{0}, u32[]{:S(2)}, u32[]{:S(2)}) collective-permute-start(%x), source_target_pairs={{0,1},{1,0}}
  %came = f32[4]{0} collective-permute-done(%sent)
  ROOT %next = (s32[], f32[4]) tuple(%n, %came)
}

ENTRY %main (p: f32[8,4]) -> f32[8,4] {
  %gathered = f32[8,4]{1,0:T(8,128)} all-gather(%p), replica_groups={{0,1},{2,3},{4,5},{6,7}}, dimensions={0}
  %started = (bf16[2]{0}, bf16[8]{0}) all-gather-start(%q), replica_groups=[2,4]<=[8], dimensions={0}
  %fused = bf16[16,8]{1,0} fusion(%r), kind=kCustom, calls=%all-reduce-scatter.3
  %named = f32[8]{0} all-to-all(%w), replica_groups=mesh['axis_0'=2,'axis_1'=4] {'axis_1'}
  %loop = (s32[], f32[4]) while(%init), condition=%more, body=%again
  ROOT %all = f32[] all-reduce(%v), replica_groups={}, to_apply=%add
}
"""


def test_traffic_of_a_program():
  found = collectives(TEXT, 8)
  assert {kind: traffic.count for kind, traffic in found.items()} == {
      "all-gather": 2, "reduce-scatter": 1, "collective-permute": 5, "all-reduce": 1,
      "all-to-all": 1,
  }  # fmt: skip
  # Half of 128 bytes; three quarters of 16.
  assert found["all-gather"].bytes == pytest.approx(64 + 12)
  assert found["reduce-scatter"].bytes == pytest.approx(64 * 8 * 2 * 3 / 4)
  assert found["collective-permute"].bytes == 5 * 16
  assert found["all-to-all"].bytes == 32 * 3 / 4
  assert found["all-reduce"].bytes == 0  # one number
