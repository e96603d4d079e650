# This handler with vLLM from PyPI, for any registry.
# docker build -f docs/containers/plain.Dockerfile -t my-lmi .
FROM python:3.12-slim

# Triton compiles kernels when the engine starts; any version of a compiler does.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends gcc g++ libc6-dev \
 && rm -rf /var/lib/apt/lists/*

# The handler is this folder's; vLLM's version is the argument's.
ARG VLLM="vllm==0.26.0"
COPY . /opt/lmi
# hadolint ignore=DL3013
RUN python3 -m pip install --no-cache-dir "${VLLM}" "/opt/lmi[server]" \
 && useradd --create-home --uid 1000 lmi

# Not as root; what vLLM compiles and downloads lies in the user's home.
USER 1000
ENV HOME=/home/lmi
WORKDIR /home/lmi

# SageMaker runs the image with the one argument `serve`.
ENTRYPOINT ["lmi"]
CMD ["serve"]
EXPOSE 8080
