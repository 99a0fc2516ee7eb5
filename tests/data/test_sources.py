"""The same records from lines, shards, a TFDS dataset and a pool; what isn't there."""

import json
import pickle

import grain
import pytest
import tensorflow_datasets as tfds

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.trajectory import to_record
from clawgym_jax.data.records import UNREADABLE, Bad
from clawgym_jax.data.sources import Named, named, open_source
from clawgym_jax.pool import Pool
from tests.data.chats import TOOLS, chat, trajectory, write, write_shard
from tests.pool.samples import trajectory as handed_in

CHATS = [chat(n % 3, f"file{n}") for n in range(6)]


def values(source):
  return [json.loads(source[index]) for index in range(len(source))]


def test_lines_are_records_and_blank_ones_are_none(tmp_path):
  path = tmp_path / "chats.jsonl"
  path.write_text("\n" + "\n \n".join(map(json.dumps, CHATS)))
  source = open_source(str(path))
  assert values(source) == CHATS
  assert json.loads(grain.MapDataset.source(source)[2]) == CHATS[2]
  assert source.where(1) == f"{path} line 4"
  again = pickle.loads(pickle.dumps(source))
  assert values(again) == CHATS and again.digest == source.digest
  path.write_text(path.read_text() + "\n{torn")
  assert len(open_source(str(path))) == 7
  assert open_source(str(path)).digest != source.digest


def test_the_folder_of_a_rollout_is_its_trajectories(tmp_path):
  record = to_record(trajectory(ids=True))
  (tmp_path / "trajectories.jsonl").write_text(json.dumps(record) + "\n")
  assert values(open_source(str(tmp_path))) == [record]


def test_shards_are_read_in_the_order_of_their_names(tmp_path):
  for number in range(2):
    name = f"chats-{number:05d}-of-00002.array_record"
    write_shard(tmp_path / name, CHATS[3 * number : 3 * number + 3])
  source = pickle.loads(pickle.dumps(open_source(str(tmp_path))))
  assert values(source) == CHATS
  one = open_source(str(tmp_path / "chats-00001-of-00002.array_record"))
  assert values(one) == CHATS[3:]
  (tmp_path / "chats-00000-of-00002.array_record").unlink()
  with pytest.raises(UserError, match="1 of the 2 shards"):
    open_source(str(tmp_path))


def test_a_damaged_chunk_costs_its_records_alone(tmp_path):
  path = tmp_path / "x.array_record"
  write_shard(path, [{"n": n, "pad": "x" * 3000} for n in range(40)], size=4)
  data = bytearray(path.read_bytes())
  data[len(data) // 3] ^= 0xFF
  path.write_bytes(data)
  source = open_source(str(path))
  lost = []
  for index in range(len(source)):
    try:
      assert json.loads(source[index])["n"] == index
    except Bad as bad:
      assert bad.cause == UNREADABLE
      lost.append(index)
  assert 1 <= len(lost) <= 4 and str(lost[0]) in source.where(lost[0])


class Chats(tfds.core.GeneratorBasedBuilder):
  """Chats, their messages as columns of texts."""

  VERSION = tfds.core.Version("1.0.0")

  def _info(self):
    text = tfds.features.Text
    names = ("role", "content", "tool_calls", "tool_call_id")
    message = {name: text() for name in names}
    features = {"messages": tfds.features.Sequence(message), "tools": text()}
    return tfds.core.DatasetInfo(
        builder=self,
        features=tfds.features.FeaturesDict(features),
        disable_shuffling=True,
    )

  def _split_generators(self, download_manager):
    return {"train": self._generate_examples()}

  def _generate_examples(self):
    for number, value in enumerate(CHATS):
      messages = [
          {
              "role": message["role"],
              "content": message["content"],
              "tool_calls": json.dumps(message["tool_calls"])
              if "tool_calls" in message
              else "",
              "tool_call_id": message.get("tool_call_id", ""),
          }
          for message in value["messages"]
      ]
      yield number, {"messages": messages, "tools": json.dumps(TOOLS)}


def test_a_tfds_dataset_of_chats(tmp_path):
  tfds.disable_progress_bar()
  builder = Chats(data_dir=tmp_path, file_format="array_record")
  builder.download_and_prepare(
      download_config=tfds.download.DownloadConfig(register_checksums=False)
  )
  folder = str(builder.data_path)
  want = [{"messages": v["messages"], "tools": TOOLS} for v in CHATS]
  source = pickle.loads(pickle.dumps(open_source(folder)))
  assert values(source) == want
  assert source.digest == open_source(f"{folder}#train").digest
  with pytest.raises(UserError, match="test"):
    open_source(f"{folder}#test")


def test_a_pool_gives_the_finished_trajectories_of_a_channel(tmp_path):
  url = f"sqlite:///{tmp_path}/pool.db"
  pool = Pool.open(url)
  pool.add_group("g", "online", "/tasks/g", 2)
  told = trajectory(ids=True)
  attempt = pool.claim("online", "w", 60)
  for step in told.steps:
    pool.append_step(attempt.trajectory_id, step)
  pool.complete(handed_in(attempt))
  source = pickle.loads(pickle.dumps(open_source(f"{url}#online")))
  (record,) = values(source)
  assert record["steps"] == to_record(told)["steps"]
  assert attempt.trajectory_id in source.where(0)
  with pytest.raises(UserError, match="no records"):
    open_source(url)
  pool.complete(handed_in(pool.claim("online", "w", 60)))
  assert len(open_source(f"{url}#online")) == 2 and len(source) == 1


@pytest.mark.parametrize(
    "name, words",
    [
        ("nowhere.jsonl", "there is no nowhere.jsonl"),
        ("sqlite:///nowhere.db", "no pool at"),
        ("mysql://host/db", "not a pool"),
        ("{empty}", "folder without records"),
        ("{blank}", "holds no records"),
        ("{blank}#train", "no parts"),
        ("{short}", "can't be read"),
    ],
)
def test_what_is_no_source_is_named_before_work_starts(tmp_path, name, words):
  (tmp_path / "empty").mkdir()
  (tmp_path / "blank").write_text("\n\n")
  (tmp_path / "short.array_record").write_text("no shard")
  names = {p.stem: str(p) for p in tmp_path.iterdir()}
  with pytest.raises(UserError, match=words):
    open_source(name.format(**names))


def test_a_file_may_have_any_name(tmp_path):
  path = write(tmp_path / "a, b#1@2", 2)
  assert named(str(path)) == [Named(str(path), None)]
  assert len(open_source(str(path))) == 2


def test_a_dataset_without_messages_is_named(tmp_path):
  write(tmp_path / "a.jsonl", 1)
  with open(tmp_path / "dataset_info.json", "w") as file:
    file.write("{}")
  with pytest.raises(UserError, match="can't be read"):
    open_source(str(tmp_path))


def test_weights_are_for_all_sources_or_for_none():
  assert [(n.name, n.weight) for n in named("a.jsonl@2, b@0.5")] == [
      ("a.jsonl", 2.0), ("b", 0.5)
  ]  # fmt: skip
  (url,) = named("postgresql://user@host/db?x=1#online")
  assert url.name.endswith("#online") and url.weight is None
  for text, words in (
      ("a@2,b", "b has no weight"), ("a@0,b@1", "weight of a"), (" , ", "no source"),
      ("a@nan,b@1", "weight of a"),
  ):  # fmt: skip
    with pytest.raises(UserError, match=words):
      named(text)
