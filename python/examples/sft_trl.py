"""Supervised fine-tuning by TRL's SFTTrainer, as one replica of a run.

The words are those of TRL's own script (ScriptArguments, SFTConfig, ModelConfig), and some for the run.
Each replica trains on its own part of the data:

    python sft_trl.py --store runs/sft --replica 0 --replicas 2 --model_name_or_path MODEL --dataset_name DATA \\
        --output_dir tuned-0

Lines that end in "# diloco" are what the run adds to a script for one machine."""
import dataclasses

import datasets
import trl

import diloco.huggingface  # diloco


def word(default, text):
    return dataclasses.field(default=default, metadata={"help": text})


@dataclasses.dataclass
class RunArguments:
    store: str = word("runs/sft", "Store of the run: a folder or a URL.")  # diloco
    replica: int = word(0, "Number of this replica, from 0.")  # diloco
    replicas: int = word(1, "Number of replicas.")  # diloco
    sync_every: int = word(100, "Optimizer steps of a round.")  # diloco
    rounds: int = word(10, "Rounds of the run.")  # diloco


def main():
    parser = trl.TrlParser((trl.ScriptArguments, trl.SFTConfig, trl.ModelConfig, RunArguments))
    script, config, model, run = parser.parse_args_and_config()
    data = datasets.load_dataset(script.dataset_name, name=script.dataset_config)[script.dataset_train_split]
    data = data.shard(run.replicas, run.replica)  # diloco
    config.max_steps = run.rounds * run.sync_every + 1  # diloco: the run itself ends the training
    callback = diloco.huggingface.DiLoCoCallback(run.store, f"r{run.replica}", replicas=run.replicas,  # diloco
                                                 sync_every=run.sync_every, rounds=run.rounds)  # diloco
    trainer = trl.SFTTrainer(model=model.model_name_or_path, args=config, train_dataset=data,
                             peft_config=trl.get_peft_config(model), callbacks=[callback])  # diloco
    trainer.train()
    trainer.save_model(config.output_dir)


if __name__ == "__main__":
    main()
