"""DCP's writer of shards to a folder, which raises the error of the disk."""

from __future__ import annotations

import torch
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult

Written = torch.futures.Future[list[WriteResult]]


class ShardWriter(FileSystemWriter):
    """Writes the shards of this rank."""

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Written:
        try:
            return super().write_data(plan, planner)
        except RuntimeError as error:  # torch.save raises it while handling an OSError
            raise error.__context__ if isinstance(error.__context__, OSError) else error  # noqa: B904
