"""Write the results of verl and TRL to trainer/tests/oracles/: `python trainer/oracles/make_fixtures.py`.

Each library is installed without its dependencies into a separate environment, which imports torch and transformers
from the environment of this script. verl_oracle.py and trl_oracle.py call the real functions there on the inputs of
oracle_inputs.py. Only numbers are copied from the libraries.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
FIXTURES = HERE.parent / "tests/oracles"
REQUIREMENTS = {
    "verl": [
        "verl==0.9.1",
        "antlr4-python3-runtime==4.9.3",
        "cloudpickle==3.1.2",
        "codetiming==1.4.0",
        "hydra-core==1.3.2",
        "importlib-metadata==10.2.0",
        "omegaconf==2.3.0",
        "orjson==3.13.0",
        "pyvers==0.2.3",
        "tensordict==0.10.0",
        "torchdata==0.11.0",
        "zipp==4.1.2",
    ],
    "trl": ["trl==1.16.0"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", type=Path, help="folder in which the environments are kept and reused")
    folder = parser.parse_args().environments
    with tempfile.TemporaryDirectory(prefix="rlt-oracles-") as throwaway:
        for name in REQUIREMENTS:
            python = create_environment(name, folder or Path(throwaway))
            subprocess.run([python, "-W", "ignore", HERE / f"{name}_oracle.py", FIXTURES / f"{name}.json"], check=True)
            print(f"{FIXTURES / name}.json")


def create_environment(name: str, folder: Path) -> Path:
    """Create an environment with one of the libraries, if it does not exist. Return its Python."""
    home = folder / name
    python = home / "bin/python"
    if not python.exists():
        uv = [sys.executable, "-m", "uv"]
        subprocess.run([*uv, "venv", "--quiet", "--python", sys.executable, home], check=True)
        install = [*uv, "pip", "install", "--quiet", "--no-deps", "--python", str(python)]
        subprocess.run([*install, *REQUIREMENTS[name]], check=True)
        packages = home / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
        # read last, so that packages of this environment take precedence
        (packages / "zz-torch.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


if __name__ == "__main__":
    main()
