# AWS's vLLM image for SageMaker, or LMI's own, with this handler in the place of its server: no DJL Serving, no Java.
# docker build -f docs/containers/vllm.Dockerfile --build-arg IMAGE=<the image of your region> -t my-lmi .
ARG IMAGE
FROM ${IMAGE}

# What it imports is in the image; --no-deps leaves vLLM, torch and the rest as they are.
COPY . /opt/lmi
RUN python3 -m pip install --no-cache-dir --no-deps /opt/lmi

# SageMaker runs the image with the one argument `serve`.
ENTRYPOINT ["lmi"]
CMD ["serve"]
EXPOSE 8080
