# Debian with Python: what mmdebstrap made. Base of the trainer's image below and of the operator's.
FROM scratch
ADD rootfs.tar /
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8
CMD ["/bin/bash"]
