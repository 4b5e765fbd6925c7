internal import ArgumentParser

/// Check of paths from the command line.
enum PathCheck {
    /// - Parameter paths: names of options, each with its path; nil for an option that was not given.
    /// - Throws: `ValidationError` for an empty path, such as that of an unset variable.
    static func check(_ paths: [(String, String?)]) throws {
        for (option, path) in paths where path?.isEmpty == true {
            throw ValidationError("\(option): the path is empty; give a path, or omit the option")
        }
    }
}
