internal import EarshotWire

/// Form in which the body of a response is delivered.
public enum BodyForm: Sendable {
    /// In memory up to the broker's setting `inline-bytes` (64 KiB), otherwise a file.
    case automatic
    /// In memory. A body above the broker's setting `inline-bytes` fails with ``BusError/Code/tooLarge``.
    case inMemory
    /// A file, unless the body is empty.
    case inFile

    var wire: BodyDelivery {
        switch self {
        case .automatic: .auto
        case .inMemory: .inline
        case .inFile: .file
        }
    }
}
