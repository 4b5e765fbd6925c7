internal import ArgumentParser
internal import EarshotLoop
internal import EarshotWire

/// The option that selects requests of another user.
struct UserOption: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "Handler of this user, as list shows it; only for the administrator of the bus: a user name or number, or "
                + "key:NAME.", valueName: "user"), completion: ShellCompletion.none)
    var user: HandlerOwner?
}

/// User of a bus: a local user, or the holder of a key.
struct HandlerOwner: ExpressibleByArgument {
    /// Principal of the user's handlers.
    let principal: PrincipalName

    init?(argument: String) {
        // Like chown(1): a name of digits that exists goes before the number.
        let id = Accounts.user(named: argument).map { "\($0)" } ?? (UInt32(argument) == nil ? nil : argument)
        guard let principal = PrincipalName(id.map { "uid:\($0)" } ?? argument) else { return nil }
        self.principal = principal
    }
}
