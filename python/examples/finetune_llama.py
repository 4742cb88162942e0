"""finetune_llama.py STORE REPLICA: one replica that fine-tunes a Hugging Face Llama on a text, by
transformers' own Trainer. Start another whenever there is another machine: it takes all settings
and the model from the run.

    diloco serve hub --listen 127.0.0.1:8080 &
    python finetune_llama.py http://127.0.0.1:8080/llama r0 --model FOLDER --text FILE &
    python finetune_llama.py http://127.0.0.1:8080/llama r1 --model FOLDER --text FILE --late 2

--model is a folder of a model and its tokenizer that transformers loads. Without one it is a small
random Llama, whose tokens are the text's bytes.
--rank 16 trains a LoRA adapter of that rank (needs peft): only the adapter is exchanged, and each
replica loads the same base model. --out FOLDER then writes the shared adapter in PEFT's format.
--late N waits for N entries of the log before it joins.
Lines that end in "# diloco" are what the run adds to a script for one machine.
"""
import argparse
import pathlib
import time  # diloco

import torch
import transformers

import diloco  # diloco
import diloco.huggingface  # diloco

CONTEXT = 32
DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"


def load(folder):
    """A model, and a function from a text to its tokens."""
    if folder:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        return (transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
                lambda text: tokenizer(text)["input_ids"])
    torch.manual_seed(0)  # an adapter needs the same base on all replicas
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=256, hidden_size=48, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, max_position_embeddings=CONTEXT)), lambda text: list(text.encode())


def adapted(model, rank):
    import peft
    return peft.get_peft_model(model, peft.LoraConfig(
        r=rank, lora_alpha=2 * rank, target_modules=["q_proj", "v_proj"]))


def examples(path, tokens_of, replica):
    """The text's tokens, in windows; every second one is a replica's."""
    data = tokens_of(pathlib.Path(path or DOCS / "architecture.md").read_text(encoding="utf-8"))
    windows = [data[i:i + CONTEXT] for i in range(0, len(data) - CONTEXT, CONTEXT)]
    number = int(replica.strip("abcdefghijklmnopqrstuvwxyz"))  # diloco
    return [{"input_ids": w, "labels": w} for w in windows[number % 2::2]]  # diloco


def wait_for(store, entries):  # diloco
    while entries:  # diloco
        try:  # diloco
            if len(diloco.run(store).history()) >= entries:  # diloco
                return  # diloco
        except diloco.NotThereError:  # diloco
            pass  # no replica has begun  # diloco
        time.sleep(0.05)  # diloco


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("store")  # diloco
    parser.add_argument("replica", help="r0, r1, …: its own for each")  # diloco
    parser.add_argument("--model")
    parser.add_argument("--text")
    parser.add_argument("--rank", type=int, default=0, help="of a LoRA adapter; 0: the whole model")
    parser.add_argument("--out", metavar="FOLDER", help="of the shared adapter, with --rank")  # diloco
    parser.add_argument("--rounds", type=int, default=30)  # diloco
    parser.add_argument("--late", type=int, default=0, metavar="ENTRIES")  # diloco
    args = parser.parse_args()

    model, tokens_of = load(args.model)
    data = examples(args.text, tokens_of, args.replica)
    if args.rank:
        model = adapted(model, args.rank)
    options = {} if args.late else {"rounds": args.rounds, "sync_every": 5}  # diloco
    wait_for(args.store, args.late)  # diloco
    trainer = transformers.Trainer(
        model, transformers.TrainingArguments(
            output_dir="unused", save_strategy="no", report_to=[], disable_tqdm=True,
            per_device_train_batch_size=8, learning_rate=2e-3, num_train_epochs=1000,
            logging_strategy="no"),
        train_dataset=data,
        callbacks=[diloco.huggingface.DiLoCoCallback(  # diloco
            args.store, args.replica, **options)])  # diloco
    trainer.train()
    counted = sum(f"{args.replica}.0000" in row["members"]  # diloco
                  for row in diloco.run(args.store).history())  # diloco
    if args.rank and args.out:  # diloco
        from diloco.peft import save  # diloco
        save(args.store, model, args.out)  # diloco
    print(f"{args.replica}: {trainer.state.global_step} steps, "
          f"counted in {counted} entries")  # diloco


if __name__ == "__main__":
    main()
