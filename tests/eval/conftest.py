"""What tests of evaluation share."""

import pytest

from tests.eval import invented


@pytest.fixture(scope="session")
def runs_folder(tmp_path_factory):
  return invented.make_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def tokenizer():
  return invented.byte_tokenizer()
