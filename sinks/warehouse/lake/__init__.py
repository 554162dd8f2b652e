"""The committed state of a lake: manifests, paths, the fence, small files on disks and in object stores."""
