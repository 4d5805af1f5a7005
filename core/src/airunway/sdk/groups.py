"""How an engine runs one model over several nodes: the flags by which the members of a group find each other.

Words only: rank and the leader's address are variables that LeaderWorkerSet puts first into every container, so that
the kubelet fills them in (recorded, LeaderWorkerSet 0.10). vLLM forms the group by itself, without Ray, since
vllm-project/vllm#23691; its images have had no Ray since 0.18.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["GROUPS", "Group", "Member"]

LEADER = "$(LWS_LEADER_ADDRESS)"
RANK = "$(LWS_WORKER_INDEX)"
PORT = 29500
"""Where the leader waits for the others."""


@dataclass(frozen=True, kw_only=True)
class Member:
    """One container of a group of `size`; the one that `leads` serves, the others only compute.

    With `pipelined` False tensors are split over all nodes, also where the engine would rather run them as stages.
    """

    size: int
    leads: bool
    pipelined: bool = True


@dataclass(frozen=True, kw_only=True)
class Group:
    """The flags of one engine: `always` for every member, `worker` for those that do not lead.

    `staged`: each node is a stage of a pipeline, so that tensors are split within nodes only; else over all of them.
    """

    always: tuple[str, ...]
    worker: tuple[str, ...] = ()
    staged: bool

    def words(self, member: Member) -> tuple[str, ...]:
        """What tells a member of its group."""
        rank = "0" if member.leads else RANK
        texts = self.always if member.leads else (*self.always, *self.worker)
        return tuple(text.format(size=member.size, rank=rank, leader=LEADER, port=PORT) for text in texts)

    def split(self, gpus: int, member: Member) -> tuple[int, int]:
        """Over how many GPUs tensors are split, and in how many stages, with `gpus` on each node of the group."""
        return (gpus, member.size) if self.staged and member.pipelined else (gpus * member.size, 1)


GROUPS: Mapping[str, Group] = {
    "vllm": Group(
        always=(
            "--distributed-executor-backend=mp",
            "--nnodes={size}",
            "--node-rank={rank}",
            "--master-addr={leader}",
            "--master-port={port}",
        ),
        worker=("--headless",),
        staged=True,
    ),
    "sglang": Group(
        always=("--nnodes={size}", "--node-rank={rank}", "--dist-init-addr={leader}:{port}"),
        staged=False,
    ),
}
"""By engine; one that is missing runs on one node only."""
