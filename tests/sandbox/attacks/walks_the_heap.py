# Kind: interpreter
# Outcome: harmless
import gc


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        for item in gc.get_objects():
            if type(item).__name__ == "EnvironmentHost":
                raise AssertionError("the host is in reach")
        return "done", 1.0, True, False, {}
