from tests.support.schedule import JAVA, LONGEST, ON_ZOOKEEPER, WAITING
from tests.tidy.tree import ROOT


def test_the_schedule_names_what_is_there() -> None:
    files = [*(file for group in JAVA.values() for file in group), *ON_ZOOKEEPER, *LONGEST]
    assert [file for file in files if not (ROOT / file).is_file()] == []
    assert [folder for folder in WAITING if not (ROOT / folder).is_dir()] == []
    assert len(set(files)) == len(files)
