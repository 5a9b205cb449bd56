"""What people and scripts can do with tasks: describe one (`build`), look before they leap (`preview`), create it
(`create`), and stop, retry, clone and delete it (`actions`)."""
