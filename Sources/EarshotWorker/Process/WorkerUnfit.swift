internal import Cares
internal import Curl
internal import Decompression

/// Reason why no worker can start on this machine until an administrator changes something.
public struct WorkerUnfit: Error, CustomStringConvertible {
    public let description: String
    /// Whether an option is wrong; otherwise a library is.
    public let isConfiguration: Bool

    /// Nil for an error that a later start may not meet.
    init?(_ error: any Error) {
        switch error {
        case let error as CaresError where error.code == .badServers:
            description = "c-ares rejects an address of --dns-server; give a numeric address, such as 9.9.9.9"
            isConfiguration = true
        case let error as CurlError where error.code == .notLoaded:
            description = "\(error); install libcurl 7.88 or later (Debian: libcurl4)"
            isConfiguration = false
        case let error as LibraryError:
            description = "\(error); install it (Debian: zlib1g, libbrotli1, libzstd1)"
            isConfiguration = false
        default: return nil
        }
    }
}
