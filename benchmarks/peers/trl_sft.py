"""Steps of TRL's SFTTrainer on a CPU in float32: losses, seconds, memory.

Settings: `config` of a LlamaConfig or `model`, a folder with weights; `ids` and
`labels` (-100: not trained), [samples][tokens], taken `rows` a step in order; `rate`.
"""

import json
import resource
import sys
import tempfile
import time

import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    TrainerCallback,
)
from trl import SFTConfig, SFTTrainer


class Clock(TrainerCallback):
  def __init__(self):
    self.seconds, self.losses = [], []

  def on_step_begin(self, *_, **__):
    self._started = time.perf_counter()

  def on_step_end(self, *_, **__):
    self.seconds.append(time.perf_counter() - self._started)

  def on_log(self, args, state, control, logs=None, **_):
    if "loss" in logs:
      self.losses.append(logs["loss"])


def main():
  settings = json.load(sys.stdin)
  torch.manual_seed(0)
  if "model" in settings:
    model = AutoModelForCausalLM.from_pretrained(settings["model"], dtype=torch.float32)
  else:
    model = LlamaForCausalLM(LlamaConfig(**settings["config"]))
  words = {f"w{i}": i for i in range(model.config.vocab_size)}
  tokenizer = PreTrainedTokenizerFast(
      tokenizer_object=Tokenizer(WordLevel(words)), pad_token="w0", eos_token="w1"
  )
  rows = settings["rows"]
  data = Dataset.from_dict({"input_ids": settings["ids"], "labels": settings["labels"]})
  clock = Clock()
  with tempfile.TemporaryDirectory() as out:
    trainer = SFTTrainer(
        model,
        args=SFTConfig(
            output_dir=out,
            per_device_train_batch_size=rows,
            max_steps=len(data) // rows,
            learning_rate=settings["rate"],
            lr_scheduler_type="constant",
            adam_beta1=0.9,
            adam_beta2=0.95,
            adam_epsilon=1e-8,
            weight_decay=0.0,
            max_grad_norm=1.0,
            max_length=None,
            train_sampling_strategy="sequential",
            gradient_checkpointing=False,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            bf16=False,
            disable_tqdm=True,
        ),
        train_dataset=data,
        processing_class=tokenizer,
        callbacks=[clock],
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    trainer.train()
  peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  print(json.dumps({
      "losses": clock.losses,
      "seconds": clock.seconds,
      "peak_bytes": peak << 10,
      "bytes_before": before << 10,
  }))


main()
