# Kind: processor
# Outcome: timeout
while True:
    pass
