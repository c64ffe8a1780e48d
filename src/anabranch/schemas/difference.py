"""Schema difference: one thing that keeps a reader with one schema from reading what another one wrote.

Its kind is what Kafka's users know from their registry (READER_FIELD_MISSING_DEFAULT_VALUE), its place a path
inside the schema.  The sentence says `{reader}` and `{writer}`, since the same comparison is made both ways:
for BACKWARD the new schema reads, for FORWARD the old one does.
"""

from typing import NamedTuple

MAX_DIFFERENCES = 20
"""As many are told; who reads more of them?"""


class Difference(NamedTuple):
    kind: str
    path: str
    sentence: str

    def told(self, reader: str, writer: str) -> str:
        description = self._said(reader, writer)
        return f"{{errorType:'{self.kind}', path:'{self.path or '/'}', description:'{description}'}}"

    @property
    def plain(self) -> str:
        """For those who know no kinds."""
        said = self._said("reader's", "writer's")
        return f"{said} at {self.path or '/'}"

    def _said(self, reader: str, writer: str) -> str:
        return self.sentence.replace("{reader}", reader).replace("{writer}", writer)

    def below(self, path: str) -> "Difference":
        """The same, of what is inside something else."""
        return self._replace(path=path + self.path)
