"""Scratch files: written values are read back, no file is visible, and a full disk is detected in time."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import gettempdir

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distkern.errors import BudgetError, RunError
from distkern.storage import ScratchFile
from tests.file_limits import largest_file
from tests.markers import variants

MIB = 1 << 20

dtypes = st.sampled_from(["float64", "float32", "float16", "int64", "int8", "bool", ">f8", "<U3"])
shapes = st.tuples(st.integers(0, 40), st.integers(0, 9))


def random_array(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    values = np.random.default_rng(seed).integers(0, 2 if dtype == "bool" else 100, nbytes, dtype=np.uint8)
    if dtype == "<U3":
        return values[: nbytes // 12 * 12 : 4].astype("<u4").view("<U3").reshape(shape)
    return values.view(dtype).reshape(shape)


def read(file: ScratchFile, offset: int, like: np.ndarray) -> np.ndarray:
    out = np.full_like(like, 7)
    file.read(offset, out)
    return out


@given(st.lists(st.tuples(shapes, dtypes), min_size=1, max_size=6), st.integers(0, 999))
def test_written_values_are_read_back(parts: list[tuple[tuple[int, int], str]], seed: int) -> None:
    with closing(ScratchFile(gettempdir())) as file:
        arrays = [random_array(shape, dtype, seed + i) for i, (shape, dtype) in enumerate(parts)]
        offsets = [file.allocate(array.nbytes) for array in arrays]
        ends = [0, *np.cumsum([array.nbytes for array in arrays]).tolist()]
        assert offsets == ends[:-1]
        assert file.nbytes == ends[-1]
        for offset, array in zip(offsets, arrays, strict=True):
            assert not read(file, offset, array.view(np.uint8) if array.size else array).any()
        order = np.random.default_rng(seed).permutation(len(arrays))
        for i in order:
            file.write(offsets[i], arrays[i])
        for offset, array in zip(offsets, arrays, strict=True):
            assert read(file, offset, array).tobytes() == array.tobytes()


@given(st.integers(1, 50), st.integers(1, 8), st.data())
def test_parts_of_a_region(rows: int, width: int, data: st.DataObject) -> None:
    """Any sequence of writes to ranges of rows leaves what the same writes leave in an array."""
    with closing(ScratchFile(gettempdir())) as file:
        before = file.allocate(16)
        offset = file.allocate(rows * width * 8)
        after = file.allocate(16)
        mirror = np.zeros((rows, width))
        for number in range(data.draw(st.integers(1, 6))):
            start = data.draw(st.integers(0, rows))
            stop = data.draw(st.integers(start, rows))
            mirror[start:stop] = number + np.arange((stop - start) * width).reshape(-1, width)
            file.write(offset + start * width * 8, mirror[start:stop])
            out = np.empty((stop - start, width))
            file.prefetch(offset + start * width * 8, out.nbytes)
            file.read(offset + start * width * 8, out)
            np.testing.assert_array_equal(out, mirror[start:stop])
        np.testing.assert_array_equal(read(file, offset, mirror), mirror)
        for other in (before, after):
            assert not read(file, other, np.empty(16, dtype=np.uint8)).any()


def test_an_array_in_another_order_is_written_in_c_order() -> None:
    with closing(ScratchFile(gettempdir())) as file:
        values = np.arange(12.0).reshape(3, 4)
        file.allocate(values.nbytes)
        for given_order in (values.T.copy().T, np.repeat(values, 2, axis=1)[:, ::2], values):
            file.write(0, given_order)
            np.testing.assert_array_equal(read(file, 0, values), values)


def test_reading_past_the_end_is_an_error() -> None:
    with closing(ScratchFile(gettempdir())) as file:
        file.allocate(8)
        with pytest.raises(OSError, match="ends early") as error:
            file.read(0, np.empty(2))
        assert error.value.errno == errno.EIO


def test_a_closed_file_is_gone(tmp_path: Path) -> None:
    with closing(ScratchFile(str(tmp_path))) as file:
        file.allocate(8)
        file.close()
        with pytest.raises(ValueError, match="closed"):
            file.write(0, np.zeros(1))


def test_nothing_is_visible_in_the_directory(tmp_path: Path) -> None:
    with closing(ScratchFile(str(tmp_path))) as file:
        assert os.listdir(tmp_path) == []
        file.write(file.allocate(MIB), np.ones(MIB // 8))
        assert os.listdir(tmp_path) == []
    assert os.listdir(tmp_path) == []


def test_space_is_reserved_before_it_is_written(tmp_path: Path) -> None:
    with closing(ScratchFile(str(tmp_path))) as file:
        file.allocate(3 * MIB)
        assert os.fstat(file._file.fileno()).st_blocks * 512 >= 3 * MIB


def check_full(error: RunError, directory: Path, nbytes: int) -> None:
    assert error.kind == "scratch-full"
    assert error.exit_code == 6
    assert str(directory) in str(error)
    assert f"{nbytes} more bytes" in str(error)
    assert re.search(r"has \d+ free", str(error))
    assert "TMPDIR" in str(error)


def test_a_file_that_may_not_grow_is_a_run_error(tmp_path: Path) -> None:
    with closing(ScratchFile(str(tmp_path))) as file:
        first = file.allocate(MIB)
        file.write(first, np.ones(MIB // 8))
        with largest_file(2 * MIB), pytest.raises(RunError) as error:
            file.allocate(5 * MIB)
        check_full(error.value, tmp_path, 5 * MIB)
        # A refused region takes no space, and the file stays usable.
        assert file.nbytes == MIB
        assert os.fstat(file._file.fileno()).st_size == MIB
        second = file.allocate(MIB)
        assert second == MIB
        assert not read(file, second, np.empty(MIB // 8)).any()
        assert read(file, first, np.empty(MIB // 8)).all()


class FullDisk(ScratchFile):
    """A disk without room."""

    code = errno.ENOSPC

    def _reserve(self, offset: int, nbytes: int) -> None:
        raise OSError(self.code, os.strerror(self.code))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_a_run_error(tmp_path: Path, code: int) -> None:
    with closing(FullDisk(str(tmp_path))) as file:
        file.code = code
        with pytest.raises(RunError) as error:
            file.allocate(4096)
        check_full(error.value, tmp_path, 4096)


def test_another_failure_of_the_disk_is_no_budget_error(tmp_path: Path) -> None:
    with closing(FullDisk(str(tmp_path))) as file:
        file.code = errno.EIO
        with pytest.raises(OSError, match=os.strerror(errno.EIO)) as error:
            file.allocate(4096)
        assert not isinstance(error.value, RunError)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, check=False)
    except OSError as error:
        pytest.skip(f"no small disk can be mounted: {error}")
    if done.returncode:
        pytest.skip("no small disk can be mounted: it takes root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def free_bytes(folder: Path) -> int:
    stat = os.statvfs(folder)
    return stat.f_bavail * stat.f_frsize


def test_a_disk_that_runs_full(small_disk: Path) -> None:
    whole = free_bytes(small_disk)
    with closing(ScratchFile(str(small_disk))) as file:
        file.allocate(3 * MIB)
        left = free_bytes(small_disk)
        assert left < 1.5 * MIB
        with pytest.raises(RunError) as error:
            file.allocate(2 * MIB)
        check_full(error.value, small_disk, 2 * MIB)
        assert free_bytes(small_disk) == left
        assert file.allocate(MIB // 2) == 3 * MIB
    assert free_bytes(small_disk) == whole


HOLD = """
import sys, time
import numpy as np
from distkern.storage import ScratchFile
file = ScratchFile(sys.argv[1])
file.write(file.allocate(3 << 20), np.ones(3 << 17))
print("holding", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("disk", variants(["small_disk"], ["tmp_path", "small_disk"]))
def test_a_killed_process_leaves_nothing(request: pytest.FixtureRequest, disk: str) -> None:
    folder: Path = request.getfixturevalue(disk)
    whole = free_bytes(folder)
    with subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "holding\n"
        assert os.listdir(folder) == []
        if disk == "small_disk":
            assert free_bytes(folder) < whole - 2 * MIB
        process.send_signal(signal.SIGKILL)
        assert process.wait(10) == -signal.SIGKILL
    assert os.listdir(folder) == []
    if disk == "small_disk":
        assert free_bytes(folder) == whole


@pytest.mark.parametrize("directory", ["missing", "a file"])
def test_a_directory_that_cannot_be_written_is_a_budget_error(tmp_path: Path, directory: str) -> None:
    (tmp_path / "a file").touch()
    with pytest.raises(BudgetError) as error:
        ScratchFile(str(tmp_path / directory))
    assert error.value.kind == "scratch"
    assert error.value.exit_code == 4
    assert str(tmp_path / directory) in str(error.value)
    assert "TMPDIR" in str(error.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_directory_is_a_budget_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(BudgetError, match=r"ermission") as error:
        ScratchFile(str(tmp_path))
    assert error.value.kind == "scratch"


OPEN = """
import resource, sys
from distkern.errors import BudgetError
from distkern.storage import ScratchFile
resource.setrlimit(resource.RLIMIT_NOFILE, (20, int(sys.argv[1])))
files = []
try:
    files += [ScratchFile(sys.argv[2]) for _ in range(40)]
except BudgetError as error:
    print(error.kind, error)
else:
    print(len(files))
"""


@pytest.mark.parametrize(("hard", "said"), variants([(20, "scratch-files")], [(20, "scratch-files"), (100, "40")]))
def test_open_files_are_limited_by_the_hard_limit_only(tmp_path: Path, hard: int, said: str) -> None:
    """Every block has its file, and systems allow 1024 unless asked."""
    command = [sys.executable, "-c", OPEN, str(hard), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(said)
    assert ("ulimit -n" in done.stdout) == (hard == 20)
