from torch.distributed.launcher import LaunchConfig, elastic_launch


def work(step):
    raise ValueError(f"bad batch at step {step}")


if __name__ == "__main__":
    config = LaunchConfig(1, 1, 2, run_id="x", rdzv_backend="c10d", rdzv_endpoint="localhost:0", max_restarts=0)
    elastic_launch(config, work)(7)
