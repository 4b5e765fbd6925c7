internal import EarshotCore
internal import Logging

extension Settings {
    /// Minimum severity of log messages.
    var logLevel: Logger.Level {
        self[.logLevel].flatMap { Logger.Level(rawValue: SettingName.logLevel.text($0)) } ?? .notice
    }
}
