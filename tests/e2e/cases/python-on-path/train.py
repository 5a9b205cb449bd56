import shutil
import subprocess

print("torchrun", shutil.which("torchrun"), flush=True)
subprocess.run(["python", "-c", "import torch; print('child torch', torch.__version__)"], check=True)
