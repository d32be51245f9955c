FROM scratch
COPY ray-operator /manager
USER 65532:65532
ENTRYPOINT ["/manager"]
