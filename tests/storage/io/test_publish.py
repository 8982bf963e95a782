import errno
import os
from pathlib import Path
from typing import Any

import pytest

from distkern.errors import DataError, StoreError
from distkern.storage.io.publish import check_destination, publish_directory, publish_file, publish_text
from tests.file_limits import largest_file


def is_marked(path: Path) -> bool:
    return (path / "mark").is_file()


def publish(path: Path, text: str, overwrite: bool = False) -> None:
    with publish_directory(path, overwrite, StoreError, is_marked) as folder:
        (folder / "mark").write_text(text)


def test_appears_only_at_the_end(tmp_path: Path) -> None:
    final = tmp_path / "deep" / "store"
    with publish_directory(final, False, StoreError, is_marked) as folder:
        (folder / "mark").write_text("new")
        assert not final.exists()
        assert folder.parent == final.parent
        assert folder.name.startswith(".store.partial-")
    assert (final / "mark").read_text() == "new"
    assert [path.name for path in final.parent.iterdir()] == ["store"]


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_failure_leaves_nothing(tmp_path: Path, failure: type[BaseException]) -> None:
    def fail() -> None:
        with publish_directory(tmp_path / "store", False, StoreError, is_marked) as folder:
            (folder / "mark").write_text("half")
            raise failure

    with pytest.raises(failure):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_failed_overwrite_keeps_the_old(tmp_path: Path) -> None:
    publish(tmp_path / "store", "old")

    def fail() -> None:
        with publish_directory(tmp_path / "store", True, StoreError, is_marked):
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert (tmp_path / "store" / "mark").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_swap_that_fails_puts_the_old_one_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(tmp_path / "store", "old")
    rename = Path.rename

    def refuse(source: Path, target: Path) -> Path:
        if ".partial-" in source.name:
            raise OSError("no rename of a new store")
        return rename(source, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises((OSError, StoreError)):
        publish(tmp_path / "store", "new", overwrite=True)
    assert (tmp_path / "store" / "mark").read_text() == "old"


def test_overwrite_replaces_and_clears_up(tmp_path: Path) -> None:
    publish(tmp_path / "store", "old")
    publish(tmp_path / "store", "new", overwrite=True)
    assert (tmp_path / "store" / "mark").read_text() == "new"
    assert len(list(tmp_path.iterdir())) == 1


def test_existing_is_refused_before_the_body_runs(tmp_path: Path) -> None:
    publish(tmp_path / "store", "old")
    ran = False
    with (
        pytest.raises(DataError, match="--overwrite") as caught,
        publish_directory(tmp_path / "store", False, DataError, is_marked),
    ):
        ran = True
    assert caught.value.kind == "exists"
    assert not ran


@pytest.mark.parametrize("obstacle", ["file", "directory", "symlink"])
def test_overwrite_refuses_another_kind(tmp_path: Path, obstacle: str) -> None:
    place = tmp_path / "store"
    if obstacle == "file":
        place.write_text("precious")
    elif obstacle == "directory":
        place.mkdir()
        (place / "thesis.tex").write_text("precious")
    else:
        publish(tmp_path / "real", "precious")
        place.symlink_to(tmp_path / "real")
    with pytest.raises(StoreError) as caught:
        publish(place, "new", overwrite=True)
    assert caught.value.kind == "foreign"
    assert str(place) in str(caught.value)
    assert place.exists()


def test_a_store_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    def publish_second() -> None:
        with publish_directory(tmp_path / "store", False, StoreError, is_marked):
            publish(tmp_path / "store", "faster")

    with pytest.raises(StoreError, match="exists already"):
        publish_second()
    assert (tmp_path / "store" / "mark").read_text() == "faster"


def test_abandoned_directories_are_removed(tmp_path: Path) -> None:
    for name in (".store.partial-dead", ".store.partial-young", ".other.partial-dead"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mark").write_text("half")
        if not name.endswith("young"):
            os.utime(tmp_path / name, (0, 0))
    with publish_directory(tmp_path / "store", False, StoreError, is_marked) as alive:
        os.utime(alive, (0, 0))
        publish(tmp_path / "store", "faster")
        left = sorted(path.name for path in tmp_path.iterdir())
        assert left == sorted([".other.partial-dead", ".store.partial-young", alive.name, "store"])
        (tmp_path / "store").rename(tmp_path / "moved")
        (alive / "mark").write_text("slower")
    assert (tmp_path / "store" / "mark").read_text() == "slower"


def test_parent_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError) as caught:
        publish(tmp_path / "file" / "store", "new")
    assert caught.value.kind == "not-writable"


def test_a_full_disk_is_an_error(tmp_path: Path) -> None:
    def fill() -> None:
        with (
            publish_directory(tmp_path / "store", False, DataError, is_marked),
            open("/dev/full", "w") as full,
        ):
            full.write("x")

    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with pytest.raises(DataError, match="no space") as caught:
        fill()
    assert caught.value.kind == "disk-full"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("publishing", [publish_directory, publish_file])
def test_an_error_of_the_body_is_not_one_of_the_destination(
    tmp_path: Path, publishing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The body reads too: its errors pass, and those of the last steps are named by the destination."""
    with pytest.raises(PermissionError, match="rows"), publishing(tmp_path / "a", False, DataError, is_marked):
        raise PermissionError(errno.EACCES, "rows cannot be read")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.EIO, "broken disk")))
    with (
        pytest.raises(DataError, match=r"a: broken disk") as caught,
        publishing(tmp_path / "a", False, DataError, is_mine),
    ):
        pass
    assert caught.value.kind == "not-writable"
    assert list(tmp_path.iterdir()) == []


def test_destination_is_made_absolute(tmp_path: Path) -> None:
    assert check_destination(tmp_path / "a" / ".." / "b", False, StoreError, is_marked) == tmp_path / "b"


# One file.


def is_mine(path: Path) -> bool:
    return path.read_text().startswith("mine")


def test_a_file_appears_only_at_the_end_and_whole(tmp_path: Path) -> None:
    place = tmp_path / "new" / "file.html"
    with publish_text(place, False, StoreError, is_mine) as texts:
        texts += ["mine ", "é"]
        assert not place.exists()
    assert place.read_text(encoding="utf-8") == "mine é"
    assert os.listdir(place.parent) == ["file.html"]


def test_a_file_that_fails_leaves_the_old_one(tmp_path: Path) -> None:
    place = tmp_path / "file.html"
    place.write_text("mine, old")
    with pytest.raises(ZeroDivisionError), publish_text(place, True, StoreError, is_mine) as texts:
        texts.append(f"mine, {1 / 0}")
    assert place.read_text() == "mine, old"
    with publish_text(place, True, StoreError, is_mine) as texts:
        texts.append("mine, new")
    assert place.read_text() == "mine, new"
    assert os.listdir(tmp_path) == ["file.html"]


def test_a_file_is_refused_before_the_body_runs(tmp_path: Path) -> None:
    place = tmp_path / "file.html"
    place.write_text("mine, old")
    with pytest.raises(StoreError) as caught, publish_text(place, False, StoreError, is_mine):
        pytest.fail("the body ran")
    assert caught.value.kind == "exists"
    place.write_text("somebody else's")
    with pytest.raises(StoreError) as caught, publish_text(place, True, StoreError, is_mine):
        pytest.fail("the body ran")
    assert caught.value.kind == "foreign"


def test_a_file_for_which_there_is_no_room(tmp_path: Path) -> None:
    place = tmp_path / "file.html"
    place.write_text("mine, old")
    with (
        pytest.raises(StoreError) as caught,
        largest_file(1000),
        publish_text(place, True, StoreError, is_mine) as texts,
    ):
        texts.append("mine" * 1000)
    assert caught.value.kind == "disk-full"
    assert "4000 bytes are needed" in str(caught.value)
    assert place.read_text() == "mine, old"
    assert os.listdir(tmp_path) == ["file.html"]
