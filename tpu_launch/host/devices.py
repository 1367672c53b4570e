"""On every host at once: do all hosts together see the chips that were rented?"""

import sys

import jax


def main() -> None:
    wanted = int(sys.argv[1])
    jax.distributed.initialize()
    found = jax.device_count()
    print(f"host {jax.process_index()} of {jax.process_count()}: {found} chips in all")
    if found != wanted:
        sys.exit(f"{found} chips, not the {wanted} that were rented: is every host up?")


if __name__ == "__main__":
    main()
