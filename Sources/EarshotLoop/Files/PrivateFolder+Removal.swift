internal import Glibc

extension PrivateFolder {
    /// Removes a folder with its content; does not follow links. Ignores entries that cannot be removed.
    public static func remove(_ path: String) {
        let descriptor = unsafe open(ByteText.path(path), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        if descriptor >= 0 {
            if let folder = unsafe fdopendir(descriptor) {
                unsafe removeEntries(folder, path)
                unsafe closedir(folder)
            } else {
                close(descriptor)
            }
        }
        unsafe rmdir(ByteText.path(path))
    }

    private static func removeEntries(_ folder: OpaquePointer, _ path: String) {
        while let entry = unsafe readdir(folder) {
            let name = unsafe withUnsafePointer(to: &entry.pointee.d_name) { pointer in
                unsafe pointer.withMemoryRebound(to: CChar.self, capacity: 256) { unsafe ByteText.text(cString: $0) }
            }
            guard name != ".", name != ".." else { continue }
            let inner = "\(path)/\(name)"
            if unsafe unlink(ByteText.path(inner)) != 0 { remove(inner) }
        }
    }
}
