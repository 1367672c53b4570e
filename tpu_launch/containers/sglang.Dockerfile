# A GPU host that samples: SGLang as it is published, in the version the client is tested with.
ARG SGLANG=lmsysorg/sglang:v0.5.23
FROM ${SGLANG}
ENTRYPOINT ["python3", "-m", "sglang.launch_server"]
