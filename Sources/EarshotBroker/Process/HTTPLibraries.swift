public import EarshotHTTP
internal import IDN2
internal import PSL

/// Functions of libidn2 and libpsl for EarshotHTTP, which links no C library. `BrokerProcess` passes them to the core.
extension HostNameEncoder {
    /// Encoder based on libidn2, which is loaded on first use.
    public static let usingLibidn2 = HostNameEncoder { name throws(Failure) in
        do throws(DomainNameError) { return try DomainName.asciiForm(of: name) } catch { throw Failure(error.detail) }
    }
}

extension PublicSuffixes {
    /// The list of libpsl, which is loaded on first use.
    static let usingLibpsl = PublicSuffixes { PublicSuffixList.contains($0) }
}
