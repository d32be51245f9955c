# Holds the namespaces of a pod open.
FROM scratch
COPY catatonit /pause
USER 65535:65535
ENTRYPOINT ["/pause", "-P"]
