"""What a pasted launch command means: which script, which arguments, how many processes, and what becomes of the rest."""

# ruff: noqa: E501  commands stand as people write them

import contextlib
import shlex
import sys
from types import FrameType

import pytest

from fermi import messages
from fermi.planning import launchers
from fermi.planning.launch_commands import LaunchCommand, recognize_command, recognize_words
from fermi.planning.shell_text import MAX_TEXT_BYTES, ShellTextError, parse_commands


def describe(found: LaunchCommand) -> str:
    """Return `GPUs×nodes framework | variables | words`, with `node:` before what is started once per node."""
    asked = found.entrypoint.to_request()
    words = asked.get("command") or [
        *(["-m", asked["module"]] if "module" in asked else [asked["script"]]),
        *asked["args"],
    ]
    kind = "$ " if "command" in asked else ""
    per_node = "node: " if asked.get("processes") == "node" else ""
    counts = f"{found.gpus_per_node or '?'}x{found.nodes or '?'}"
    env = " ".join(f"{name}={value}" for name, value in found.env.items())
    before = " ".join(filter(None, (counts, found.framework)))
    return f"{before} | {env and env + ' '}{per_node}{kind}{shlex.join(words)}"


COMMANDS = [
    # torchrun and its modules
    ("torchrun train.py", "?x? | train.py"),
    ("torchrun --nproc_per_node=8 --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$HOST:29500 train.py --lr 1e-4", "8x2 | train.py --lr 1e-4"),
    ("torchrun --standalone --nproc-per-node gpu ./train.py config/a.py --compile=False", "?x? | train.py config/a.py --compile=False"),
    ("torchrun --nnodes 1:4 --nproc_per_node 2 --max_restarts=3 --rdzv-id job1 train.py", "2x4 | train.py"),
    ("torchrun --nproc_p 4 -t 3 -r 1:3 --log_dir /tmp/l train.py", "4x? | train.py"),
    ("torchrun -m --nproc_per_node 4 pkg.train --x 1", "4x? | -m pkg.train --x 1"),
    ("torchrun --nproc_per_node 2 --no-python bash run.sh a", "2x? | $ bash run.sh a"),
    ("torchrun --nproc_per_node 4 -- train.py --a", "4x? | train.py --a"),
    ("/opt/venv/bin/torchrun --nproc_per_node 4 train.py", "4x? | train.py"),
    ("python $CONDA/bin/torchrun --nproc_per_node 4 train.py", "4x? | train.py"),
    ("python -m torch.distributed.run --nproc-per-node 4 -m pkg.train --x 1", "4x? | -m pkg.train --x 1"),
    ("python -m torch.distributed.launch --use_env --nproc_per_node=2 train.py", "2x? | train.py"),
    ("python3 -m torch.distributed.launch --nproc_per_node=2 --master_port 1234 train.py --a", "2x? | train.py '--local-rank={local_rank}' --a"),
    ("torchrun --nproc_per_node 8 run_clm.py --deepspeed ds.json --local_rank 0", "8x? deepspeed | run_clm.py --deepspeed ds.json '--local_rank={local_rank}'"),
    # Accelerate
    ("accelerate launch train.py", "?x? | train.py"),
    ("accelerate launch --num_processes 8 --num_machines 2 --machine_rank 0 --main_process_ip 10.0.0.1 --main_process_port 1 --mixed_precision bf16 -m pkg.train", "4x2 | ACCELERATE_MIXED_PRECISION=bf16 -m pkg.train"),
    ("accelerate launch --multi_gpu --gpu_ids 0,1 --dynamo_backend inductor train.py", "2x? | ACCELERATE_DYNAMO_BACKEND=INDUCTOR train.py"),
    ("accelerate launch --cpu --num_cpu_threads_per_process=4 train.py", "?x? | ACCELERATE_USE_CPU=True OMP_NUM_THREADS=4 train.py"),
    ("accelerate launch --num_processes 8 --mixed_precision bf16 --config_file x.yaml train.py --b 'c d'",
     "8x? | node: $ python -m accelerate.commands.launch --mixed_precision bf16 --config_file x.yaml '--num_processes={world_size}' '--num_machines={nnodes}' '--machine_rank={node_rank}' '--main_process_ip={master}' '--main_process_port={port}' train.py --b 'c d'"),
    ("accelerate launch --use_deepspeed --zero_stage=2 train.py",
     "?x? deepspeed | node: $ python -m accelerate.commands.launch --use_deepspeed --zero_stage=2 '--num_processes={world_size}' '--num_machines={nnodes}' '--machine_rank={node_rank}' '--main_process_ip={master}' '--main_process_port={port}' train.py"),
    ("accelerate-launch --num_processes=2 train.py", "2x? | train.py"),
    ("python -m accelerate.commands.launch --num_processes=2 train.py", "2x? | train.py"),
    # DeepSpeed
    ("deepspeed --num_gpus 8 --hostfile h train.py --deepspeed ds.json", "8x? deepspeed | train.py '--local_rank={local_rank}' --deepspeed ds.json"),
    ("deepspeed --num_nodes=2 --num_gpus=4 --no_local_rank --module pkg.train --deepspeed_config c.json", "4x2 deepspeed | -m pkg.train --deepspeed_config c.json"),
    ("deepspeed --include localhost:0,1 --master_port 60000 train.py", "2x1 deepspeed | train.py '--local_rank={local_rank}'"),
    ("deepspeed -i worker-0@worker-1:0,2 train.py", "?x2 deepspeed | train.py '--local_rank={local_rank}'"),
    # Lightning
    ("fabric run --accelerator=cuda --devices=2 --precision bf16-mixed train.py --a", "2x? | LT_CLI_USED=1 LT_DEVICES={nproc_per_node} LT_NUM_NODES={nnodes} LT_ACCELERATOR=cuda LT_PRECISION=bf16-mixed train.py --a"),
    ("lightning run model --strategy=ddp --devices=8 --num-nodes 2 train.py", "8x2 | LT_CLI_USED=1 LT_DEVICES={nproc_per_node} LT_NUM_NODES={nnodes} LT_STRATEGY=ddp train.py"),
    # Horovod, MPI, Slurm
    ("horovodrun -np 4 -H h:4 python train.py", "4x1 horovod | train.py"),
    ("horovodrun --num-proc 8 -H a:4,b:4 --network-interface eth0 --blacklist-cooldown-range 1 2 python -u train.py --e 3", "4x2 horovod | train.py --e 3"),
    ("mpirun -np 4 --allow-run-as-root -x NCCL_DEBUG=INFO -x PATH -mca btl ^openib -bind-to none python train.py", "4x? | NCCL_DEBUG=INFO train.py"),
    ("mpirun -np 2 --tag-output --stream-buffering 1 --display map --prtemca a b --report-child-jobs-separately python train.py", "2x? | train.py"),
    ("mpiexec.hydra -n 2 -launcher fork -print-all-exitcodes -prepend-rank -usize 4 python train.py", "2x? | train.py"),
    ("mpirun -n 8 -hosts a,b -ppn 4 -genv A 1 python3 train.py", "4x2 | A=1 train.py"),
    ("mpiexec -n 2 bash run.sh", "2x? | $ bash run.sh"),
    ("srun -N2 --ntasks-per-node=8 --gpus-per-node=8 -p gpu -t 1:00 -lu python -u train.py --rank $SLURM_PROCID --world-size $SLURM_NTASKS", "8x2 | train.py --rank '{rank}' --world-size '{world_size}'"),
    ("srun --nodes=4 --ntasks-per-node=1 bash -c 'torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 --node_rank $SLURM_NODEID train.py'", "8x4 | train.py"),
    ("srun --ntasks-per-node=1 -N 2 bash run.sh", "?x2 | node: $ bash run.sh"),
    ("srun --kill-on-bad-exit --exclusive -K1 -k --nice=5 --ntasks-per-n 2 --container-mount-home python train.py", "2x? | train.py"),
    ("srun --container-image img.sqsh --container-mounts a:b --no-container-remap-root python train.py", "?x? | train.py"),
    ("srun --gres=gpu:a100:4 --export=ALL,A=b python train.py", "4x? | A=b train.py"),
    # Python itself
    ("python train.py", "?x? | train.py"),
    ("python3 -u train.py --a=1 --b", "?x? | train.py --a=1 --b"),
    ("python -m pkg.train --lr 1e-3", "?x? | -m pkg.train --lr 1e-3"),
    ("python -X faulthandler -W ignore -u train.py", "?x? | $ python -X faulthandler -W ignore train.py"),
    ("python -c 'import pkg; pkg.main()'", "?x? | $ python -c 'import pkg; pkg.main()'"),
    ("/opt/conda/bin/python3.10 train.py", "?x? | train.py"),
    ("./train.py --a", "?x? | train.py --a"),
    ("CUDA_VISIBLE_DEVICES=0,1 OMP_NUM_THREADS=4 RANK=0 MASTER_PORT=1 python train.py", "2x? | OMP_NUM_THREADS=4 train.py"),
    ("env -u X A=b 'C=d e' python train.py", "?x? | A=b C=d e train.py"),
    ("PYTHONPATH=.:$PYTHONPATH LD_LIBRARY_PATH=/x python train.py", "?x? | PYTHONPATH=. train.py"),
    ("python main.py -a resnet50 --dist-url 'tcp://127.0.0.1:2345' --dist-backend nccl --multiprocessing-distributed --world-size 1 --rank 0 /data",
     "?x? | node: main.py -a resnet50 '--dist-url={dist_url}' --dist-backend nccl --multiprocessing-distributed '--world-size={nnodes}' '--rank={node_rank}' /data"),
    ("python train.py --lora --rank 16", "?x? | train.py --lora --rank 16"),
    ("python train.py --world_size 4 --rank 0 --dist_url env://", "?x? | train.py '--world_size={world_size}' '--rank={rank}' --dist_url env://"),
    # Shells and scripts
    ("bash run.sh", "?x? | node: $ bash run.sh"),
    ("sh scripts/train.sh a 'b c'", "?x? | node: $ sh scripts/train.sh a 'b c'"),
    ("./run.sh 4", "?x? | node: $ ./run.sh 4"),
    ("bash -lc 'python train.py --a \"b c\"'", "?x? | train.py --a 'b c'"),
    ("source run.sh", "?x? | node: $ bash run.sh"),
    # Package runners and programs that stay before the command
    ("uv run train.py --x", "?x? | $ uv run python train.py --x"),
    ("uv run --with 'transformers>4' --python 3.12 python -m pkg.train", "?x? | $ uv run --with 'transformers>4' --python 3.12 python -m pkg.train"),
    ("uv run -m pkg.train", "?x? | $ uv run python -m pkg.train"),
    ("uv run torchrun --nproc_per_node 2 train.py", "2x? | $ uv run python train.py"),
    ("micromamba run -r /opt/m -n env --clean-env -e A=b python train.py", "?x? | $ micromamba run -r /opt/m -n env --clean-env -e A=b python train.py"),
    ("conda run -n env --no-capture-output python train.py", "?x? | $ conda run -n env --no-capture-output python train.py"),
    ("poetry run python train.py", "?x? | $ poetry run python train.py"),
    ("nsys profile -o x torchrun --nproc_per_node 2 train.py", "2x? | $ nsys profile -o x python train.py"),
    ("timeout 10h python train.py", "?x? | $ timeout 10h python train.py"),
    # As in a terminal and in a README
    ("nohup python -u train.py --a > log 2>&1 &", "?x? | train.py --a"),
    ("time python train.py | tee out.log", "?x? | train.py"),
    ("$ cd examples && nohup torchrun --nproc_per_node 2 \\\n>   train.py 'a b' > log 2>&1 &", "2x? | examples/train.py 'a b'"),
    ("(base) me@host:~/code$ python train.py\nepoch 1: loss 3.2\nepoch 2: loss 3.1", "?x? | train.py"),
    ("torchrun --nproc_per_node=2 \\  \r\n    train.py \\\r\n    --name \"中文 名\" \\\r\n    --out 'my dir/训练'\r\n", "2x? | train.py --name '中文 名' --out 'my dir/训练'"),
    ("```bash\ntorchrun --nproc_per_node 4\n    --nnodes 1 train.py\n```", "4x1 | train.py"),
    ("!python train.py", "?x? | train.py"),
    ("# one machine\nexport A=b; export HF_HOME=/data/hf\nsource venv/bin/activate\npython train.py  # go", "?x? | A=b HF_HOME=/data/hf train.py"),
    ("git clone https://github.com/x/nanoGPT.git\ncd nanoGPT\npip install torch\npython data/prepare.py\ntorchrun --standalone --nproc_per_node=8 train.py config/a.py", "8x? | train.py config/a.py"),
    ("GPUS=8\nARGS=\"--nproc_per_node $GPUS --nnodes ${NNODES:-1}\"\nMODEL=(--layers 12 --name \"a b\")\ntorchrun $ARGS pretrain.py \"${MODEL[@]}\" --data $DATA", "8x1 | pretrain.py --layers 12 --name 'a b' --data '$DATA'"),
    ("python '我的 目录/训练 脚本.py' --文本 '他说 \"好\"' --path=$'a\\tb'", "?x? | '我的 目录/训练 脚本.py' '--文本' '他说 \"好\"' '--path=a\tb'"),
    ("python train.py model.name=\"a,b\" '+data=[1,2]' hydra.run.dir='out/${now:%Y}'", "?x? | train.py model.name=a,b '+data=[1,2]' 'hydra.run.dir=out/${now:%Y}'"),
    ("cd \"$PWD\" && python train.py --root $PWD/data", "?x? | train.py --root ./data"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "meaning"), COMMANDS, ids=[text[:60] for text, _meaning in COMMANDS])
def test_a_launch_command_is_recognized(text: str, meaning: str) -> None:
    found = recognize_command(text)
    assert not found.unclear
    assert describe(found) == meaning
    for note in found.notes:
        for language in ("en", "zh"):
            message, _hint = messages.render_text(note.code, language, **note.params)
            assert message
            assert messages.MISSING_VALUE not in message


def test_enough_commands_are_tried() -> None:
    assert len({text for text, _meaning in COMMANDS}) >= 60


@pytest.mark.parametrize(
    ("text", "code", "command"),
    [
        ("torchrun --strange x train.py", "COMMAND_OPTION_UNKNOWN", "torchrun --strange x train.py"),
        ("torchrun --help", "COMMAND_NO_SCRIPT", "torchrun --help"),
        ("docker run --gpus all image python train.py", "COMMAND_PROGRAM_UNKNOWN", "docker run --gpus all image python train.py"),
        ("my-trainer --config 'a b'", "COMMAND_PROGRAM_UNKNOWN", "my-trainer --config 'a b'"),
        ("sbatch run.sh", "COMMAND_SUBMITS_ELSEWHERE", "sbatch run.sh"),
        ("for i in 1 2; do python a.py; done", "COMMAND_SHELL_SYNTAX", "bash -c 'for i in 1 2; do python a.py; done'"),
        ("(cd a; python b.py)", "COMMAND_SHELL_SYNTAX", "bash -c '(cd a; python b.py)'"),
        ("python - <<EOF\nprint(1)\nEOF", "COMMAND_SHELL_SYNTAX", "bash -c 'python - <<EOF\nprint(1)\nEOF'"),
    ],
)  # fmt: skip
def test_what_is_not_understood_runs_as_it_is_once_per_node(text: str, code: str, command: str) -> None:
    found = recognize_command(text)
    assert [one.code for one in found.unclear] == [code]
    assert found.entrypoint == found.as_is
    assert found.entrypoint.to_request() == {"command": shlex.split(command), "processes": "node"}
    assert all(messages.render_text(one.code, "zh", **one.params)[0] for one in found.unclear)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "COMMAND_TEXT_EMPTY"),
        ("  \n# nothing\n", "COMMAND_TEXT_EMPTY"),
        ("export A=b\ncd x", "COMMAND_TEXT_STARTS_NOTHING"),
        ("pip install torch", "COMMAND_TEXT_STARTS_NOTHING"),
        ("请运行训练", "COMMAND_TEXT_STARTS_NOTHING"),
        ("python 'train.py", "COMMAND_TEXT_UNCLOSED"),
        ('python "train.py', "COMMAND_TEXT_UNCLOSED"),
        ("python train.py $(date", "COMMAND_TEXT_UNCLOSED"),
        ("A=(1 2\npython train.py", "COMMAND_TEXT_UNCLOSED"),
        ("python \x1b[1m train.py", "COMMAND_TEXT_CONTROL"),
        ("python train.py " + "a" * MAX_TEXT_BYTES, "COMMAND_TEXT_TOO_LONG"),
        ("A=" + "a" * 1000 + "\n" + "python x.py" + " $A" * 100, "COMMAND_TEXT_TOO_LONG"),
        ("A=aaaaaaaa\n" + "A=$A$A\n" * 60 + "python x.py $A", "COMMAND_TEXT_TOO_LONG"),
        ("A=aaaaaaaa\n" + 'A="$A$A"\n' * 60 + "python x.py", "COMMAND_TEXT_TOO_LONG"),
        ("A=aaaaaaaa\n" + "export A=$A$A\n" * 60 + "python x.py", "COMMAND_TEXT_TOO_LONG"),
        ("A=(a b)\n" + "A=(${A[@]} ${A[@]})\n" * 60 + "python x.py", "COMMAND_TEXT_TOO_LONG"),
    ],
)  # fmt: skip
def test_a_text_that_starts_nothing_is_refused(text: str, code: str) -> None:
    with pytest.raises(ShellTextError) as refused:
        recognize_command(text)
    assert refused.value.code == code
    assert all(messages.render_text(code, "zh", **refused.value.params))


def test_each_thing_left_out_is_named_with_its_reason() -> None:
    found = recognize_command(
        "pip install -r requirements.txt\nCUDA_VISIBLE_DEVICES=0 RANK=1 WANDB_API_KEY=k torchrun --nproc_per_node 2"
        " --master_port 1 --max-restarts 4 --tee 3 --numa-binding node train.py --data $DATA > log"
    )
    assert {note.code: note.params for note in found.notes} == {
        "COMMAND_NOT_RUN": {"command": "pip install -r requirements.txt"},
        "COMMAND_COUNT_CHOSEN": {"option": "--nproc_per_node 2"},
        "COMMAND_MEETING_CHOSEN": {"option": "--master_port 1"},
        "COMMAND_RESTARTS": {"option": "--max-restarts 4", "count": 4},
        "COMMAND_OUTPUT_KEPT": {"option": "--tee 3, > log"},
        "COMMAND_OPTION_LEFT_OUT": {"option": "--numa-binding node"},
        "COMMAND_DEVICES_CHOSEN": {"option": "CUDA_VISIBLE_DEVICES=0"},
        "COMMAND_VARIABLE_RESERVED": {"option": "RANK=1"},
        "COMMAND_VARIABLE_SECRET": {"name": "WANDB_API_KEY"},
        "COMMAND_VALUE_NOT_EXPANDED": {"option": "$DATA"},
    }
    assert found.max_restarts == 4
    assert found.as_is.command[:3] == ("torchrun", "--nproc_per_node", "2")


def test_the_first_command_that_starts_ranks_is_chosen() -> None:
    found = recognize_command("python a.py\ntorchrun b.py\npython c.py")
    assert found.entrypoint.script == "b.py"
    assert [note.params["command"] for note in found.notes] == ["python a.py", "python c.py"]
    assert recognize_command("python a.py\npython c.py").entrypoint.script == "c.py"


def test_a_script_that_starts_ranks_itself_is_started_once_per_node() -> None:
    text = b"import torch.multiprocessing as mp\nmp.spawn(main, nprocs=2)\n"
    found = recognize_command("python train.py", lambda script: text if script == "train.py" else b"")
    assert found.entrypoint.processes == "node"
    assert found.notes[0].params == {"script": "train.py", "what": "mp.spawn", "line": 2}
    assert recognize_command("torchrun train.py", lambda _script: text).entrypoint.processes == "gpu"


def test_the_argument_of_a_launcher_is_spelt_as_the_script_declares_it() -> None:
    text = b"import argparse\np = argparse.ArgumentParser()\np.add_argument('--local_rank', type=int, required=True)\n"
    command = "python -m torch.distributed.launch train.py"
    assert recognize_command(command, lambda _script: text).entrypoint.args == ("--local_rank={local_rank}",)
    assert recognize_command(command, lambda _script: b"").entrypoint.args == ("--local-rank={local_rank}",)


def test_words_of_a_shell_are_not_split_again() -> None:
    found = recognize_words(["A=b", "torchrun", "--nproc_per_node", "2", "my script.py", "a $B;c", "--x=y z"])
    assert found.entrypoint.to_request() == {"script": "my script.py", "args": ["a $B;c", "--x=y z"]}
    assert found.env == {"A": "b"}
    assert recognize_words(["torchrun train.py --a 'b c'"]).entrypoint.args == ("--a", "b c")
    with pytest.raises(ShellTextError):
        recognize_words([])


@pytest.mark.parametrize("piece", ["\\\n", "$A", "'", '"', "$(", "(", "a=(", "\n", "x ", "${A:-", ";", "bash -c "])
def test_reading_needs_time_in_proportion_to_the_length(piece: str) -> None:
    """Calls are counted, not seconds."""

    def count_calls(length: int) -> int:
        calls = 0

        def count(_frame: FrameType, event: str, _argument: object) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            with contextlib.suppress(ShellTextError):
                recognize_command((piece * length)[:length])
        finally:
            sys.setprofile(None)
        return calls

    assert count_calls(MAX_TEXT_BYTES) < 5 * count_calls(MAX_TEXT_BYTES // 4) + 200


def test_no_option_has_a_value_and_none() -> None:
    tables = [value for value in vars(launchers).values() if isinstance(value, launchers.Options)]
    assert len(tables) >= 9
    for table in tables:
        assert not table.flags & table.values
        assert not (table.flags | table.values) & (table.pairs | table.optional)
        assert not table.pairs & table.optional


def test_torchruns_options_are_those_of_its_parser() -> None:
    run = pytest.importorskip("torch.distributed.run")
    for action in run.get_args_parser()._actions:
        for option in action.option_strings:
            name = option.lstrip("-").replace("_", "-")
            assert name in (launchers.TORCHRUN.flags if action.nargs == 0 else launchers.TORCHRUN.values), option


def test_a_shell_text_is_split_as_a_shell_splits_it() -> None:
    [command] = parse_commands('A=1 cmd \'a\'"b"c\\ d $\'x\\n\' "q\\"$X" 2>/dev/null >> log &')
    assert [word.source for word in command.words] == ["A=1", "cmd", "abc d", "x\n", 'q"$X']
    assert command.redirects == ["2>/dev/null", ">> log"]
    assert command.end == "&"
