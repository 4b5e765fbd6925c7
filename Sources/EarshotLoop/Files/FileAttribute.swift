internal import CLinux
internal import Glibc

/// Extended attribute of files, xattr(7). File systems without attributes, and links, have none.
public struct FileAttribute: Sendable {
    private let name: String
    /// Maximum length of a value in bytes. Longer ones are not read.
    private let maximumBytes: Int

    public init(_ name: String, maximumBytes: Int) {
        self.name = name
        self.maximumBytes = maximumBytes
    }

    /// Returns the value of a file; nil without one.
    public func value(ofFile path: String) -> [UInt8]? {
        var bytes = [UInt8](repeating: 0, count: maximumBytes)
        let count = unsafe lgetxattr(ByteText.cString(path), name, &bytes, bytes.count)
        return count < 0 ? nil : Array(bytes[..<count])
    }

    /// Sets the value of a file, or removes it.
    ///
    /// - Returns: whether the file system did so.
    @discardableResult
    public func setValue(_ value: [UInt8]?, ofFile path: String) -> Bool {
        let path = ByteText.cString(path)
        guard let value else { return unsafe lremovexattr(path, name) == 0 }
        return unsafe lsetxattr(path, name, value, value.count, 0) == 0
    }

    /// Sets the value of an open file, or removes it.
    ///
    /// - Returns: whether the file system did so.
    @discardableResult
    public func setValue(_ value: [UInt8]?, ofDescriptor descriptor: Int32) -> Bool {
        guard let value else { return unsafe fremovexattr(descriptor, name) == 0 }
        return unsafe fsetxattr(descriptor, name, value, value.count, 0) == 0
    }
}
