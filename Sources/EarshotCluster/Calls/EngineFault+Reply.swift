internal import EarshotCore

extension EngineFault {
    /// Fault for an error reply. Only its first words are kept, since the rest may repeat arguments.
    init(error: String, isAuthentication: Bool) {
        let word = Self.short(error.prefix { $0 != " " })
        switch word {
        case "WRONGPASS", "NOAUTH": self = .accessDenied
        // "ERR AUTH called without any password configured", and "ERR invalid password" of old versions.
        case "ERR" where isAuthentication: self = .accessDenied
        case "NOPERM": self = .notPermitted(Self.subject(error))
        case "READONLY": self = .notPrimary
        case "LOADING", "MASTERDOWN": self = .loading
        case "NOREPLICAS", "OOM", "MISCONF": self = .refusesWrites(word)
        case "LOST": self = .leaseLost
        // "ERR The user executing the script can't run this command or subcommand".
        case _ where error.contains("user executing the script"): self = .notPermitted("scripts")
        default: self = .failed(word)
        }
    }

    /// A word from the server, cut and without control characters: it reaches logs, reports and the screen.
    private static func short(_ word: some StringProtocol) -> String {
        String(
            String.UnicodeScalarView(
                word.unicodeScalars.prefix(32).filter { $0.isASCII && $0.value > 0x20 && $0.value != 0x7f }))
    }

    /// `NOPERM this user has no permissions to run the 'info' command`: the quoted word, or the kind of object.
    private static func subject(_ error: String) -> String {
        let parts = error.split(separator: "'", omittingEmptySubsequences: false)
        if parts.count >= 3 { return short(parts[1]) }
        return error.contains("channel") ? "channels" : "keys"
    }
}
