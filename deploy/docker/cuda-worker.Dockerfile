# The image of a worker with NVIDIA GPUs. cuBLASLt and NCCL come from the base image CUDA_IMAGE, and the driver
# comes from the host (NVIDIA's container toolkit). Build it from the repository's root:
#   docker build -f deploy/docker/cuda-worker.Dockerfile -t tessera/cuda-worker .
ARG CUDA_IMAGE=nvidia/cuda:13.0.1-runtime-ubuntu24.04
# PROGRAMS may also name an image that has the programs staged at /stage/opt/tessera.
ARG PROGRAMS=build

FROM debian:12 AS build
WORKDIR /src
COPY scripts/setup scripts/packages.txt scripts/
RUN scripts/setup && rm -rf /var/lib/apt/lists/*
COPY . .
RUN --mount=type=cache,target=/root/.cache/ccache \
    cmake --preset release && cmake --build --preset release --target image_programs
RUN scripts/stage deploy/images/cuda-worker.files build/release /stage/opt/tessera

FROM ${PROGRAMS} AS programs

FROM ${CUDA_IMAGE}
RUN --mount=type=bind,source=deploy/images/prepare,target=/prepare /prepare
# NCCL opens the verbs libraries where there is InfiniBand.
RUN apt-get update && \
    apt-get install -y --no-install-recommends ibverbs-providers libibverbs1 librdmacm1 && \
    rm -rf /var/lib/apt/lists/*
COPY --from=programs /stage/opt/tessera /opt/tessera
ENV PATH=/opt/tessera/bin:/usr/bin:/bin \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 10001:10001
WORKDIR /var/lib/tessera
EXPOSE 8472 8491 9471
HEALTHCHECK --interval=5s --timeout=4s --start-period=60s --retries=3 \
    CMD ["tessera", "doctor", "--health", "http://127.0.0.1:9471/healthz"]
ENTRYPOINT ["tessera-worker"]
