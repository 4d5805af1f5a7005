"""The flags with which an engine runs one model over several nodes.

LeaderWorkerSet defines rank and leader address as the first variables of every container, so the kubelet expands them
in arguments (recorded, LeaderWorkerSet 0.10). vLLM forms the group without Ray since vllm-project/vllm#23691; its
images contain no Ray since 0.18.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["GROUPS", "Group", "Member"]

LEADER = "$(LWS_LEADER_ADDRESS)"
RANK = "$(LWS_WORKER_INDEX)"
PORT = 29500
"""The port on which the leader waits for the other members."""


@dataclass(frozen=True, kw_only=True)
class Member:
    """One container of a group that runs a model together."""

    size: int
    """Number of members in the group."""
    leads: bool
    """Whether it serves; the other members only compute."""
    pipelined: bool = True
    """False: split tensors over all nodes, even if the engine would by default run each node as a pipeline stage."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """The group flags of one engine."""

    always: tuple[str, ...]
    """Flags of every member."""
    worker: tuple[str, ...] = ()
    """Further flags of members that do not lead."""
    staged: bool
    """Each node is a pipeline stage, and tensors are split within a node. False: tensors are split over all nodes."""

    def words(self, member: Member) -> tuple[str, ...]:
        """The arguments by which a member joins its group."""
        rank = "0" if member.leads else RANK
        texts = self.always if member.leads else (*self.always, *self.worker)
        return tuple(text.format(size=member.size, rank=rank, leader=LEADER, port=PORT) for text in texts)

    def split(self, gpus: int, member: Member) -> tuple[int, int]:
        """Tensor parallel size and number of pipeline stages, with `gpus` on each node of the group."""
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
"""By engine; an engine that is not listed runs on one node only."""
