"""Server-side assignors by the name that members ask for them by."""

from anabranch.groups.assignors.range import assign_ranges
from anabranch.groups.assignors.subscribers import Assignor
from anabranch.groups.assignors.uniform import assign_uniformly

ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniformly, "range": assign_ranges}
