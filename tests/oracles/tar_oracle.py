"""Archives by Python's tarfile, and where it finds their files: tar_oracle.py FOLDER"""
import io
import sys
import tarfile

folder = sys.argv[1]
long = "f" * 90 + "/" + "g" * 60 + "/7.jpg"
names = ["a.jpg", "dir/b.cls", long, "h\u00e9.jpg", "dir/empty"]
for name, kind in (("ustar", tarfile.USTAR_FORMAT), ("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT)):
    path = f"{folder}/{name}.tar"
    with tarfile.open(path, "w", format=kind, pax_headers={"comment": "x"}) as tar:
        folder_entry = tarfile.TarInfo("dir")
        folder_entry.type = tarfile.DIRTYPE
        tar.addfile(folder_entry)
        for i, member in enumerate(names + ([] if name == "ustar" else ["n" * 300 + ".jpg"])):
            info = tarfile.TarInfo(member)
            info.size = 0 if member.endswith("empty") else 511 + i
            info.mtime = 1.5 if name == "pax" else 1
            tar.addfile(info, io.BytesIO(bytes(info.size)))
    with tarfile.open(path) as tar, open(f"{folder}/{name}.txt", "w", encoding="utf-8") as f:
        for info in tar:
            if info.isfile():
                f.write(f"{info.offset_data} {info.size} {info.name}\n")
