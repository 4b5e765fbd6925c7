/// Why a setting was not taken: a sentence about what is possible, with nothing in it that somebody supplied.
public struct SettingError: Error, Equatable, CustomStringConvertible {
    public let description: String

    init(_ description: String) {
        self.description = description
    }
}
