internal import EarshotWire

/// Where the body of a response is.
public enum BodyForm: Sendable {
    /// In memory if it is small, by a setting of the broker (64 KiB), else in a file.
    case automatic
    /// In memory; one over the broker's setting for small bodies ends as ``BusError/Code/tooLarge``.
    case inMemory
    /// In a file, unless it is empty.
    case inFile

    var wire: BodyDelivery {
        switch self {
        case .automatic: .auto
        case .inMemory: .inline
        case .inFile: .file
        }
    }
}
