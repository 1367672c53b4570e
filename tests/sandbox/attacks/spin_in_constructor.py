# Kind: processor
# Outcome: timeout
class AttackEnv:
    def __init__(self):
        while True:
            pass
