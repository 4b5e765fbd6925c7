/// Reason why a setting was rejected: a sentence about the possible values, without text from the input.
public struct SettingError: Error, Equatable, CustomStringConvertible {
    public let description: String

    init(_ description: String) {
        self.description = description
    }
}
