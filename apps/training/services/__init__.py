"""Operations of users and scripts on tasks: describe one (`build`), preview it (`preview`), create it (`create`), and
stop, retry, clone and delete it (`actions`)."""
